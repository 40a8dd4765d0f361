//! Answers from a server's profile, without a link.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use stayput_upstream::{
    CallOptions, Isolation, LinkOwner, PooledLink, Profile, Server, ServerProtocol,
};
use stayput_wire::{Code, Edits, Era, Message, Raw, Version, json, meta};

use crate::{
    call::modern::answer::AnswerEdits, connections::connection::Connection,
    identify::RequestContext, reply::ReplyText, route::discover, state::AppState,
};

/// Returns the cache lifetime of a result of a modern server, in milliseconds.
pub(super) fn ttl(result: Raw<'_>) -> u64 {
    let ttl = result.find(&["ttlMs"]).and_then(Raw::integer);
    ttl.and_then(|ttl| u64::try_from(ttl).ok()).unwrap_or_default()
}

/// Returns whether a cached result may still be sent to a client that observes its lifetime. The lifetime only counts
/// for a modern server that can be asked on an existing link.
pub(super) fn is_fresh(server: &Server, profile: &Profile, result: &str) -> bool {
    let era = profile.protocol().era();
    if era == Era::Legacy || server.isolation(era) == Isolation::PerSession {
        return true;
    }
    let ttl = Raw::parse(result).map(ttl).unwrap_or_default();
    profile.age().is_some_and(|age| age < Duration::from_millis(ttl))
}

/// Builds the `initialize` result for a client that speaks `version`.
pub(super) fn initialize_result(profile: &Profile, version: &Version) -> String {
    let result = profile.initialize_result().result();
    let version = json::quote(version.as_str());
    if profile.protocol() == ServerProtocol::Modern {
        return of_discovery(result, &version);
    }
    let mut edits = Edits::new(result);
    edits.set(&["protocolVersion"], &version);
    edits.apply().map_or_else(|_| result.to_owned(), Cow::into_owned)
}

/// Builds an `initialize` result from a `server/discover` result, which has the same data in other fields.
fn of_discovery(said: &str, version: &str) -> String {
    let raw = Raw::parse(said).ok();
    let find = |path: &[&str]| raw.and_then(|raw| raw.find(path)).map(Raw::as_str);
    let capabilities = find(&["capabilities"]).unwrap_or("{}");
    let info = find(&[meta::META, meta::SERVER_INFO]).or_else(|| find(&["serverInfo"]));
    let info = info.unwrap_or(r#"{"name":"server","version":"0"}"#);
    let mut result = format!(
        r#"{{"protocolVersion":{version},"capabilities":{capabilities},"serverInfo":{info}"#
    );
    if let Some(instructions) = find(&["instructions"]) {
        result.push_str(r#","instructions":"#);
        result.push_str(instructions);
    }
    result.push('}');
    result
}

/// Timeout for a list that the server announced as changed.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers a list request or `server/discover` from what is known, without a session. `profile` of the server is known
/// for modern clients.
pub(super) async fn known(
    context: &RequestContext<'_>,
    server: &Server,
    profile: Option<&Profile>,
) -> Option<ReplyText> {
    let asked = context.asked();
    let Some(profile) = profile else {
        let page = known_to(context.connection?, context, server).await?;
        return Some(match asked.method {
            "tools/list" => context.result(&shown(context, &page).await),
            _ => context.result(&page),
        });
    };
    if asked.method == "server/discover" {
        return discover::known(server, profile).map(|result| context.result(&result));
    }
    let Some(page) = page(profile, asked.method, context.message.params()) else {
        // A server with one link per session is not asked for an unknown cursor, because that would need a link.
        let isolation = server.isolation(profile.protocol().era());
        let refused = isolation == Isolation::PerSession && !profile.pages(asked.method).is_empty();
        return refused.then(|| context.error(Code::INVALID_PARAMS, "there is no such cursor"));
    };
    if !is_fresh(server, profile, page) {
        return None;
    }
    let listed = AnswerEdits::new(asked, profile).passing(context.tools()).result(page);
    let shown = match asked.method {
        "tools/list" => context.app.shown(context, &listed).await,
        _ => None,
    };
    Some(context.result(shown.as_deref().unwrap_or(&listed)))
}

/// Returns whether a page of tools has to be edited for this client.
pub(super) fn is_edited(context: &RequestContext<'_>) -> bool {
    let app = context.app;
    context.tools().is_some() || app.takes_argument(context) || app.shows_tools(context)
}

/// Filters a page of tools, and adds the session tools and the session argument.
pub(super) async fn shown<'p>(context: &RequestContext<'_>, page: &'p str) -> Cow<'p, str> {
    let page = context.tools().map_or(page.into(), |tools| tools.filter(page));
    context.app.shown(context, &page).await.map_or(page, Cow::Owned)
}

/// Returns the requested page of a list, if no link has to be opened for it. A list is cached until the server
/// announces a change; after that, clients with a link get it from the server.
async fn known_to(
    connection: &Connection,
    context: &RequestContext<'_>,
    server: &Server,
) -> Option<String> {
    let (app, message) = (context.app, context.message);
    let (place, method) = (connection.place(), message.method()?);
    let link = linked(app, server, connection);
    if let Some(link) = link.as_ref().filter(|link| link.lists_changed() > 0) {
        return asked(link, message).await;
    }
    let known = app.links.current_profile(server, &place).await;
    if let Some(link) = link.filter(|_| known.is_some_and(|it| it.is_relearned()))
        && let Some(page) = asked(&link, message).await
    {
        return Some(page);
    }
    let profile = app.links.profile_for(server, &place, &connection.client_info).await.ok()?;
    page(&profile, method, message.params()).map(str::to_owned)
}

/// Returns the link on which a client can ask for its lists: one on which a list changed, else that of its default
/// session, else the one it used last.
pub(super) fn linked(
    app: &AppState,
    server: &Server,
    connection: &Connection,
) -> Option<PooledLink> {
    let mut sessions = connection.sessions();
    // The default session comes first, then the named sessions, the latest last.
    if let Some(named) = sessions.get_mut(1..) {
        named.reverse();
    }
    let find = |session| app.links.find(server, &LinkOwner::new(connection.owner.clone(), session));
    let mut links: Vec<PooledLink> = sessions.into_iter().filter_map(find).collect();
    let changed = links.iter().position(|link| link.lists_changed() > 0).unwrap_or_default();
    (!links.is_empty()).then(|| links.swap_remove(changed))
}

/// Requests a page from the server, on an existing link.
async fn asked(link: &PooledLink, message: &Message<'_>) -> Option<String> {
    let method = message.method()?;
    let options = CallOptions { limit: Some(LIST_TIMEOUT), ..CallOptions::default() };
    let params = message.params().map(Raw::as_str);
    let answer = link.call(method, params, options).await.ok()?.answer().await.ok()?;
    let result = answer.result()?;
    if method == "tools/list" {
        link.learn_tools(result);
    }
    Some(result.to_owned())
}

/// Returns the requested page of a cached list, or `None` if the server has to be asked.
pub(super) fn page<'a>(
    profile: &'a Profile,
    method: &str,
    params: Option<Raw<'_>>,
) -> Option<&'a str> {
    let pages = profile.pages(method);
    let cursor = params.and_then(|params| params.find(&["cursor"])).filter(|it| !it.is_null());
    let at = match cursor {
        None => position(pages, None),
        Some(cursor) => position(pages, Some(&cursor.text()?)),
    };
    str::from_utf8(pages.get(at?)?).ok()
}

/// Returns the index of the page that `cursor` leads to.
pub(super) fn position(pages: &[Bytes], cursor: Option<&str>) -> Option<usize> {
    let Some(cursor) = cursor else { return (!pages.is_empty()).then_some(0) };
    let leads = |page: &Bytes| {
        let next = Raw::parse(str::from_utf8(page).ok()?).ok()?.find(&["nextCursor"])?;
        Some(next.text()? == cursor)
    };
    let before = pages.iter().position(|page| leads(page) == Some(true))?;
    Some(before + 1).filter(|at| *at < pages.len())
}

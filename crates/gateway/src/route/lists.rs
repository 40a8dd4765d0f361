//! Answers from a server's profile, without a link.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use stayput_upstream::{
    CallOptions, Isolation, LinkOwner, PooledLink, Profile, Server, ServerProtocol,
};
use stayput_wire::{Code, Edits, Era, Message, Raw, Version, json, meta};

use crate::{
    call::modern::answer::AnswerEdits, catalog::list::PageFacts,
    connections::connection::Connection, identify::RequestContext, reply::ReplyText,
    route::discover, session_tools::present::ToolEdits, state::AppState,
};

/// Returns the facts about a page of a profile.
pub(super) fn facts(app: &AppState, page: &Bytes) -> PageFacts {
    app.lists.facts.get(std::slice::from_ref(page), String::new(), || (PageFacts::read(page), 64))
}

/// Returns whether a cached page may still be sent to a client that observes its lifetime. The lifetime only counts
/// for a modern server that can be asked on an existing link.
pub(super) fn is_fresh(server: &Server, profile: &Profile, ttl: impl FnOnce() -> u64) -> bool {
    if profile.era() == Era::Legacy || profile.isolation(server) == Isolation::PerSession {
        return true;
    }
    profile.age().is_some_and(|age| age < Duration::from_millis(ttl()))
}

/// Builds the `initialize` result for a client that speaks `version`.
pub(super) fn initialize_result(profile: &Profile, version: &Version) -> String {
    let result = profile.initialize_result().result();
    let version = json::quote(version.as_str());
    if profile.protocol() == ServerProtocol::Modern {
        return initialize_from_discover(result, &version);
    }
    let mut edits = Edits::new(result);
    edits.set(&["protocolVersion"], &version);
    edits.apply().map_or_else(|_| result.to_owned(), Cow::into_owned)
}

/// Builds an `initialize` result from a `server/discover` result, which has the same data in other fields.
fn initialize_from_discover(said: &str, version: &str) -> String {
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

/// Answers a list request or `server/discover` without a session: for a modern client from `profile`, for a legacy client,
/// whose `profile` is `None`, from the page that [`find_page`] finds. Returns `None` if no answer is known.
pub(super) async fn answer_from_profile(
    context: &RequestContext<'_>,
    server: &Server,
    profile: Option<&Profile>,
) -> Option<ReplyText> {
    let asked = context.request_ref();
    let Some(profile) = profile else {
        return Some(match find_page(context.connection?, context, server).await? {
            KnownPage::Cached(page) => {
                context.result(text(&present_legacy_page(context, &page).await)?)
            }
            KnownPage::Asked(page) if asked.method == "tools/list" => {
                context.result(&present_tools(context, &page).await)
            }
            KnownPage::Asked(page) => context.result(&page),
        });
    };
    if asked.method == "server/discover" {
        return discover::cached_result(server, profile).map(|result| context.result(&result));
    }
    let Some(page) = page(context.app, (profile, asked.method), context.message.params()) else {
        // A server with one link per session is not asked for an unknown cursor, because that would need a link.
        let refused = profile.isolation(server) == Isolation::PerSession
            && !profile.pages(asked.method).is_empty();
        return refused.then(|| context.error(Code::INVALID_PARAMS, "there is no such cursor"));
    };
    if !is_fresh(server, profile, || facts(context.app, page).ttl) {
        return None;
    }
    Some(context.result(text(&present_modern_page(context, profile, page).await)?))
}

/// Page of a list for a legacy client.
enum KnownPage {
    /// Page of the profile.
    Cached(Bytes),
    /// Page that the server was just asked for.
    Asked(String),
}

fn text(page: &Bytes) -> Option<&str> {
    str::from_utf8(page).ok()
}

/// Returns a page of the profile as a legacy client sees it.
async fn present_legacy_page(context: &RequestContext<'_>, page: &Bytes) -> Bytes {
    if context.request_ref().method != "tools/list" || !is_edited(context) {
        return page.clone();
    }
    let edits = context.app.tool_edits(context).await;
    cached_page(context, page, edits.as_ref(), |text| {
        let filtered = context.tools().map_or(text.into(), |tools| tools.filter(text));
        let edited = edits.as_ref().and_then(|edits| edits.apply(context, &filtered));
        edited.unwrap_or_else(|| filtered.into_owned())
    })
}

/// Returns a page of the profile as a modern client sees it.
async fn present_modern_page(
    context: &RequestContext<'_>,
    profile: &Profile,
    page: &Bytes,
) -> Bytes {
    let asked = context.request_ref();
    let edits = match asked.method {
        "tools/list" => context.app.tool_edits(context).await,
        _ => None,
    };
    cached_page(context, page, edits.as_ref(), |text| {
        let listed = AnswerEdits::new(asked, profile.initialize_result())
            .passing(context.tools())
            .result(text);
        let edited = edits.as_ref().and_then(|edits| edits.apply(context, &listed));
        edited.unwrap_or_else(|| listed.into_owned())
    })
}

/// Returns a page as this kind of client sees it. `present` is called if that is not known yet.
fn cached_page(
    context: &RequestContext<'_>,
    page: &Bytes,
    edits: Option<&ToolEdits>,
    present: impl FnOnce(&str) -> String,
) -> Bytes {
    let Some(text) = text(page) else { return page.clone() };
    let edits = edits.map(ToolEdits::key).unwrap_or_default();
    let (method, kind) = (context.request_ref().method, context.connection_kind());
    let view = format!("{} {method} {:?} {kind:?} {edits}", context.label(), context.era);
    context.app.lists.pages.get(std::slice::from_ref(page), view, || {
        let presented = Bytes::from(present(text));
        let size = presented.len();
        (presented, size)
    })
}

/// Returns whether a page of tools has to be edited for this client.
pub(super) fn is_edited(context: &RequestContext<'_>) -> bool {
    let app = context.app;
    context.tools().is_some() || app.takes_argument(context) || app.shows_tools(context)
}

/// Filters a page of tools, and adds the session tools and the session argument.
pub(super) async fn present_tools<'p>(context: &RequestContext<'_>, page: &'p str) -> Cow<'p, str> {
    let page = context.tools().map_or(page.into(), |tools| tools.filter(page));
    let edits = context.app.tool_edits(context).await;
    edits.and_then(|edits| edits.apply(context, &page)).map_or(page, Cow::Owned)
}

/// Returns the requested page of a list, if no link has to be opened for it. A list is cached until the server
/// announces a change; after that, clients with a link get it from the server.
async fn find_page(
    connection: &Connection,
    context: &RequestContext<'_>,
    server: &Server,
) -> Option<KnownPage> {
    let (app, message) = (context.app, context.message);
    let (link_owner, method) = (connection.link_owner(), message.method()?);
    let link = find_list_link(app, server, connection);
    if let Some(link) = link.as_ref().filter(|link| link.lists_changed() > 0) {
        return request_page(link, message).await.map(KnownPage::Asked);
    }
    let known = app.links.current_profile(server, &link_owner).await;
    if let Some(link) = link.filter(|_| known.is_some_and(|it| it.is_relearned()))
        && let Some(page) = request_page(&link, message).await
    {
        return Some(KnownPage::Asked(page));
    }
    let profile = app.links.profile_for(server, &link_owner, &connection.client_info).await.ok()?;
    page(app, (&profile, method), message.params()).cloned().map(KnownPage::Cached)
}

/// Returns the link on which a client can ask for its lists: one on which a list changed, else that of its default
/// session, else the one it used last.
pub(super) fn find_list_link(
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
async fn request_page(link: &PooledLink, message: &Message<'_>) -> Option<String> {
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
    app: &AppState,
    (profile, method): (&'a Profile, &str),
    params: Option<Raw<'_>>,
) -> Option<&'a Bytes> {
    let pages = profile.pages(method);
    let cursor = params.and_then(|params| params.find(&["cursor"])).filter(|it| !it.is_null());
    let at = match cursor {
        None => position(app, pages, None),
        Some(cursor) => position(app, pages, Some(&cursor.text()?)),
    };
    pages.get(at?)
}

/// Returns the index of the page that `cursor` leads to.
pub(super) fn position(app: &AppState, pages: &[Bytes], cursor: Option<&str>) -> Option<usize> {
    let Some(cursor) = cursor else { return (!pages.is_empty()).then_some(0) };
    let before = pages.iter().position(|page| facts(app, page).next.as_deref() == Some(cursor))?;
    Some(before + 1).filter(|at| *at < pages.len())
}

//! Answers from a server's profile, without a link.

use std::time::Duration;

use bytes::Bytes;
use stayput_upstream::{CallOptions, Isolation, LinkOwner, PooledLink, Profile, Server, Way};
use stayput_wire::{Edits, Era, Message, Raw, Version, json, meta};

use crate::{connections::connection::Connection, state::AppState};

/// Returns the cache lifetime of a result of a modern server, in milliseconds.
pub(crate) fn ttl(result: Raw<'_>) -> u64 {
    let ttl = result.find(&["ttlMs"]).and_then(Raw::integer);
    ttl.and_then(|ttl| u64::try_from(ttl).ok()).unwrap_or_default()
}

/// Returns whether a cached result may still be sent to a client that observes its lifetime. The lifetime only counts
/// for a modern server that can be asked on an existing link.
pub(crate) fn is_fresh(server: &Server, profile: &Profile, result: &str) -> bool {
    let era = profile.way().era();
    if era == Era::Legacy || server.isolation(era) == Isolation::PerSession {
        return true;
    }
    let ttl = Raw::parse(result).map(ttl).unwrap_or_default();
    profile.age().is_some_and(|age| age < Duration::from_millis(ttl))
}

/// Builds the `initialize` result for a client that speaks `version`.
pub(crate) fn greeting(profile: &Profile, version: &Version) -> String {
    let result = profile.greeting().result();
    let version = json::quote(version.as_str());
    if profile.way() == Way::Modern {
        return of_discovery(result, &version);
    }
    let mut edits = Edits::new(result);
    edits.set(&["protocolVersion"], &version);
    edits.apply().map_or_else(|_| result.to_owned(), std::borrow::Cow::into_owned)
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

/// Returns the requested page of a list, if no link has to be opened for it. A list is cached until the server
/// announces a change; after that, clients with a link get it from the server.
pub(crate) async fn known(
    app: &AppState,
    server: &Server,
    connection: &Connection,
    message: &Message<'_>,
) -> Option<String> {
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
    let profile = app.links.profile_for(server, &place, &connection.hello).await.ok()?;
    page(&profile, method, message.params()).map(str::to_owned)
}

/// Returns the link on which a client can ask for its lists: one on which a list changed, else that of its default
/// session, else the one it used last.
pub(crate) fn linked(
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
pub(crate) fn page<'a>(
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
pub(crate) fn position(pages: &[Bytes], cursor: Option<&str>) -> Option<usize> {
    let Some(cursor) = cursor else { return (!pages.is_empty()).then_some(0) };
    let leads = |page: &Bytes| {
        let next = Raw::parse(str::from_utf8(page).ok()?).ok()?.find(&["nextCursor"])?;
        Some(next.text()? == cursor)
    };
    let before = pages.iter().position(|page| leads(page) == Some(true))?;
    Some(before + 1).filter(|at| *at < pages.len())
}

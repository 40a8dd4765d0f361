//! What is answered out of a server's profile, without a link.

use std::time::Duration;

use bytes::Bytes;
use stayput_upstream::{Hello, Isolation, Place, Profile, Server, Way};
use stayput_wire::{Edits, Era, Message, Raw, Version, json, meta};

use crate::house::House;

/// How long what a legacy server lists may be kept, in milliseconds.
pub(crate) const TTL: u64 = 60_000;

/// How long a modern server says that a result may be kept, in milliseconds.
pub(crate) fn ttl(result: Raw<'_>) -> u64 {
    let ttl = result.find(&["ttlMs"]).and_then(Raw::integer);
    ttl.and_then(|ttl| u64::try_from(ttl).ok()).unwrap_or_default()
}

/// Whether what a server once said may still be passed on to who does not keep it longer than it may. A modern
/// server that can be asked on a link that is there anyway says itself for how long.
pub(crate) fn is_fresh(server: &Server, profile: &Profile, result: &str) -> bool {
    let era = profile.way().era();
    if era == Era::Legacy || server.isolation(era) == Isolation::PerSession {
        return true;
    }
    let ttl = Raw::parse(result).map(ttl).unwrap_or_default();
    profile.age().is_some_and(|age| age < Duration::from_millis(ttl))
}

/// The result of `initialize` for a client that speaks `version`.
pub(crate) fn greeting(profile: &Profile, version: &Version) -> String {
    let said = profile.greeting().result();
    let version = json::quote(version.as_str());
    if profile.way() == Way::Modern {
        return of_discovery(said, &version);
    }
    let mut edits = Edits::new(said);
    edits.set(&["protocolVersion"], &version);
    edits.apply().map_or_else(|_| said.to_owned(), std::borrow::Cow::into_owned)
}

/// A modern server says the same in other places.
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

/// The page of a list that a request asks for, as far as it is known without a link. What a server lists
/// is known until it says that it changed.
pub(crate) async fn known(
    house: &House,
    server: &Server,
    (place, hello): (&Place, &Hello),
    message: &Message<'_>,
) -> Option<String> {
    let changed = house.links.find(server, place).is_some_and(|link| link.lists_changed() > 0);
    if changed {
        return None;
    }
    let profile = house.links.profile_for(server, place, hello).await.ok()?;
    page(&profile, message.method()?, message.params()).map(str::to_owned)
}

/// The page of a list that a request asks for; `None` if it has to be asked for.
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

/// Which of these pages is asked for with `cursor`.
pub(crate) fn position(pages: &[Bytes], cursor: Option<&str>) -> Option<usize> {
    let Some(cursor) = cursor else { return (!pages.is_empty()).then_some(0) };
    let leads = |page: &Bytes| {
        let next = Raw::parse(str::from_utf8(page).ok()?).ok()?.find(&["nextCursor"])?;
        Some(next.text()? == cursor)
    };
    let before = pages.iter().position(|page| leads(page) == Some(true))?;
    Some(before + 1).filter(|at| *at < pages.len())
}

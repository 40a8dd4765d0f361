//! Lists, which never vary by conversation.

use std::{sync::Arc, time::Duration};

use http::Response;
use stayput_upstream::{Isolation, Profile};
use stayput_wire::{Era, Raw};

use super::{Request, answer::Finish, errand};
use crate::{
    lists,
    reply::{self, Reply},
};

/// How long what a legacy server lists may be kept, in milliseconds.
pub(super) const TTL: u32 = 60_000;

/// It is the same for everybody.
pub(super) const PUBLIC: &str = r#""public""#;

/// Whether a method asks for a list.
pub(super) fn is_list(method: &str) -> bool {
    matches!(method, "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list")
}

/// Whether what a server once said may still be passed on. A modern server that can be asked on a link that
/// is there anyway says itself for how long.
pub(super) fn is_fresh(request: &Request<'_>, profile: &Profile, result: &str) -> bool {
    let era = profile.way().era();
    if era == Era::Legacy || request.server.isolation(era) == Isolation::PerSession {
        return true;
    }
    let ttl = Raw::parse(result).ok().and_then(|result| result.find(&["ttlMs"])?.integer());
    let ttl = ttl.and_then(|ttl| u64::try_from(ttl).ok()).unwrap_or_default();
    profile.age().is_some_and(|age| age < Duration::from_millis(ttl))
}

/// One page of a list: as it is known, or else as the server says now.
pub(super) async fn answer(request: &Request<'_>, profile: &Arc<Profile>) -> Response<Reply> {
    let known = lists::page(profile, request.method, request.message.params());
    let known = known.filter(|page| is_fresh(request, profile, page));
    let Some(page) = known else { return errand::ask(request, profile).await };
    let finish = Finish::new(request.asked(), profile).passing(request.tools());
    reply::message(reply::result(request.id, &finish.result(page)))
}

//! Lists, which never vary by conversation.

use http::Response;
use stayput_upstream::{Isolation, Profile};
use stayput_wire::Code;

use crate::{
    call::modern::{answer::Finish, request::ModernRequest},
    reply::{self, Reply},
    route::lists,
};

/// One page of a list, as far as it is known. Who has a link for each session is not asked for a page that
/// it did not announce: that would take a link.
pub(crate) async fn known(
    request: &ModernRequest<'_>,
    profile: &Profile,
) -> Option<Response<Reply>> {
    let Some(page) = lists::page(profile, request.method, request.message.params()) else {
        let isolation = request.server.isolation(profile.way().era());
        let listed = !profile.pages(request.method).is_empty();
        let refused = || request.refused(Code::INVALID_PARAMS, "there is no such cursor");
        return (listed && isolation == Isolation::PerSession).then(refused);
    };
    if !lists::is_fresh(request.server, profile, page) {
        return None;
    }
    let finish = Finish::new(request.asked(), profile).passing(request.tools());
    let listed = finish.result(page);
    let shown = match request.method {
        "tools/list" => request.app.shown(&request.claim(), &listed).await,
        _ => None,
    };
    Some(reply::message(reply::result(request.id, shown.as_deref().unwrap_or(&listed))))
}

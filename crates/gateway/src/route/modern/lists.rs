//! Lists, which do not depend on the session.

use http::Response;
use stayput_upstream::{Isolation, Profile};
use stayput_wire::Code;

use crate::{
    call::modern::{answer::Finish, request::ModernRequest},
    reply::{self, Reply},
    route::lists,
};

/// Returns one page of a list, if it is known. A server with one link per session is not asked for an unknown cursor,
/// because that would need a link.
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
        "tools/list" => request.app.shown(&request.context(), &listed).await,
        _ => None,
    };
    Some(reply::message(reply::result(request.id, shown.as_deref().unwrap_or(&listed))))
}

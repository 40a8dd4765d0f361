//! Login of a browser at the dashboard on the gateway itself.

use http::{Method, Response, StatusCode, header, request::Parts};
use stayput_core::{Clock as _, SystemClock};

use crate::{
    admin::{self, dashboard},
    auth::{Principal, login},
    reply::Reply,
    state::AppState,
};

/// Returns the principal of the login whose cookie a request for the admin API carries. The credential that was sent at
/// the login is checked again, because the configuration may have changed since.
pub(super) fn principal(app: &AppState, head: &Parts) -> Option<Principal> {
    let path = head.uri.path();
    let is_for_page = admin::has(path) || path == dashboard::LOGOUT;
    if !is_for_page || head.headers.contains_key(header::AUTHORIZATION) {
        return None;
    }
    let known = app.logins.find(&head.headers)?;
    app.authenticator.recheck(&known, SystemClock.now())
}

/// Answers a login or a logout of this principal.
pub(super) fn answer(app: &AppState, principal: &Principal, head: &Parts) -> Response<Reply> {
    let page = login::page_secret(&head.headers).filter(|_| head.method == Method::POST);
    let Some(page) = page else {
        let sentence = "only the page of the gateway posts here";
        return dashboard::refusal(StatusCode::METHOD_NOT_ALLOWED, sentence);
    };
    if head.uri.path() == dashboard::LOGOUT {
        return dashboard::with_cookie(app.logins.remove(&head.headers));
    }
    if !principal.admin {
        let sentence = "this token does not have the role `admin`; `stayput token NAME --admin` makes one that \
                        does, and `stayput ui` on the machine of the gateway needs none";
        return dashboard::refusal(StatusCode::FORBIDDEN, sentence);
    }
    let secure = app.rules.tls.is_some()
        || app.rules.public_url.as_ref().is_some_and(|url| url.starts_with("https://"));
    match app.logins.add(principal.clone(), page, principal.until, secure) {
        Ok(cookie) => dashboard::with_cookie(cookie),
        Err(error) => dashboard::refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!("the system has no random numbers: {error}"),
        ),
    }
}

//! The cookie `mcp_session_id`, where it is switched on.
//!
//! To a client with a handshake it is what `Mcp-Session-Id` is. To one without it is a session's handle
//! that its model never sees.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use stayput_core::{EndReason, Handle, OpenOptions, OpenedSession, Session, SessionOpenError};
use stayput_wire::header as mcp;

use super::{FoundSession, RequestContext, refusal::Refusal};
use crate::{identify::header_names, state::AppState};

/// What the cookie of a request says.
pub(crate) fn read(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.find_map(mcp::session_cookie)
}

/// The secret name of the connection that a request came on, out of its header or else its cookie.
/// What cannot be one leads nowhere.
pub(crate) fn connection(app: &AppState, headers: &HeaderMap) -> Option<Handle> {
    let by_header =
        headers.get(&header_names::SESSION_ID).map(|id| id.to_str().unwrap_or_default());
    let by_cookie = || read(headers).filter(|_| is_on(app));
    by_header.or_else(by_cookie)?.parse().ok()
}

/// Whether cookies count.
pub(crate) fn is_on(app: &AppState) -> bool {
    app.identify.configured.carriers.cookie
}

/// The session of a client that has no connection: a new one for whoever comes without a cookie.
pub(super) async fn session(
    app: &Arc<AppState>,
    claim: &RequestContext<'_>,
) -> Result<FoundSession, Refusal> {
    let failed = |error: SessionOpenError| Refusal::of(&error, "Try again: you get a new session.");
    let Some(said) = read(claim.headers) else {
        // Who does not bring it back costs little.
        let wish = OpenOptions::new(claim.owner.clone()).provisional();
        let opened = app.open(&wish, claim.label()).await;
        let OpenedSession { session, origin } = opened.map_err(failed)?;
        return Ok(FoundSession { session, origin, handle: None });
    };
    let handle: Handle = said.parse().map_err(|_| failed(SessionOpenError::Unknown))?;
    let found = app.patiently(|| app.sessions.find_by_handle(claim.owner, &handle)).await;
    let found = match found {
        // As for a connection: it begins anew, and the loss is told.
        Err(SessionOpenError::Ended(over))
            if over.ended.is_none_or(|it| it.reason != EndReason::Closed) =>
        {
            app.session(claim.owner, over.id).await
        }
        found => found,
    };
    found.map(FoundSession::kept).map_err(failed)
}

/// What `Set-Cookie` says on the answer to a client that has no connection, if cookies are on: the
/// session of this call, or that what the client has is no good.
pub(crate) async fn given(
    app: &AppState,
    headers: &HeaderMap,
    session: Option<&Session>,
) -> Option<HeaderValue> {
    if !is_on(app) {
        return None;
    }
    let Some(session) = session else { return line(app, None) };
    let known = read(headers).and_then(|said| said.parse::<Handle>().ok());
    let known = match known {
        Some(handle) => {
            let led = app.sessions.find_by_handle(session.owner(), &handle).await;
            led.ok().filter(|led| led.id() == session.id()).map(|_| handle)
        }
        None => None,
    };
    match known {
        // Set again, so that it lives on with its session.
        Some(handle) => line(app, Some(&handle)),
        None => line(app, Some(&app.sessions.issue_handle(session).await.ok()?)),
    }
}

/// `Set-Cookie` for a secret, or to forget one. R046, R047: no script reads it, it goes over TLS and to
/// this machine alone, to no other site, and it ends with the session.
pub(crate) fn line(app: &AppState, secret: Option<&Handle>) -> Option<HeaderValue> {
    let expiry = app.identify.expiry;
    let age = [expiry.idle, expiry.absolute].into_iter().flatten().min();
    let age = if secret.is_some() { age.map(|age| age.as_secs()) } else { Some(0) };
    let value = secret.map_or("", Handle::expose);
    let line = mcp::set_session_cookie(value, true, "Strict", age);
    let mut line = HeaderValue::try_from(line).ok()?;
    line.set_sensitive(true);
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_found_among_others() {
        let said = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, HeaderValue::from_static(line));
            }
            read(&headers).map(str::to_owned)
        };
        assert_eq!(said(&["a=b; mcp_session_id=sp_x; c=d"]).as_deref(), Some("sp_x"));
        assert_eq!(said(&["a=b", "mcp_session_id=y"]).as_deref(), Some("y"));
        assert_eq!(said(&["xmcp_session_id=y"]), None);
        assert_eq!(said(&[]), None);
    }
}

//! The cookie `mcp_session_id`, where it is enabled.
//!
//! For a client with `initialize` it replaces `Mcp-Session-Id`. For a client without, it is the handle of a session,
//! which the model never sees.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use stayput_core::{EndReason, Handle, OpenOptions, OpenedSession, Session, SessionOpenError};
use stayput_wire::header as mcp;

use super::{FoundSession, RequestContext, refusal::Refusal};
use crate::{identify::header_names, state::AppState};

/// Value of the session cookie of a request.
pub(crate) fn read(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.find_map(mcp::session_cookie)
}

/// Returns the secret name of the request's connection, from the header `Mcp-Session-Id` or else from the cookie.
/// `None` if the value is not a valid name.
pub(crate) fn connection(app: &AppState, headers: &HeaderMap) -> Option<Handle> {
    let by_header =
        headers.get(&header_names::SESSION_ID).map(|id| id.to_str().unwrap_or_default());
    let by_cookie = || read(headers).filter(|_| is_on(app));
    by_header.or_else(by_cookie)?.parse().ok()
}

/// Whether cookies are enabled.
pub(crate) fn is_on(app: &AppState) -> bool {
    app.identify.configured.carriers.cookie
}

/// Opens the session of a client that has no connection. A request without a cookie gets a new session.
pub(super) async fn session(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<FoundSession, Refusal> {
    let failed = |error: SessionOpenError| Refusal::of(&error, "Try again: you get a new session.");
    let Some(value) = read(context.headers) else {
        // Provisional: a client that never sends the cookie back costs little.
        let options = OpenOptions::new(context.owner.clone()).provisional();
        let opened = app.open(&options, context.label()).await;
        let OpenedSession { session, origin } = opened.map_err(failed)?;
        return Ok(FoundSession { session, origin, handle: None });
    };
    let handle: Handle = value.parse().map_err(|_| failed(SessionOpenError::Unknown))?;
    let found = app.wait_for_holder(|| app.sessions.find_by_handle(context.owner, &handle)).await;
    let found = match found {
        // As for a connection: the session starts over, and the loss is reported.
        Err(SessionOpenError::Ended(over))
            if over.ended.is_none_or(|it| it.reason != EndReason::Closed) =>
        {
            app.session(context.owner, over.id).await
        }
        found => found,
    };
    found.map(FoundSession::kept).map_err(failed)
}

/// Value of `Set-Cookie` for a client that has no connection, if cookies are enabled. It names the session of this
/// call, or deletes a cookie that is not valid.
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
        // Set again, so that the cookie lives as long as its session.
        Some(handle) => line(app, Some(&handle)),
        None => line(app, Some(&app.sessions.issue_handle(session).await.ok()?)),
    }
}

/// Formats `Set-Cookie` for a secret, or for its deletion. R046, R047: HttpOnly, Secure, SameSite=Strict, only for
/// this host, and it expires with the session.
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
    fn session_cookie_is_found_among_others() {
        let found = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, HeaderValue::from_static(line));
            }
            read(&headers).map(str::to_owned)
        };
        assert_eq!(found(&["a=b; mcp_session_id=sp_x; c=d"]).as_deref(), Some("sp_x"));
        assert_eq!(found(&["a=b", "mcp_session_id=y"]).as_deref(), Some("y"));
        assert_eq!(found(&["xmcp_session_id=y"]), None);
        assert_eq!(found(&[]), None);
    }
}

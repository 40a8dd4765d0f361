//! The cookie `mcp_session_id`, where it is enabled.
//!
//! For a client with `initialize` it replaces `Mcp-Session-Id`. For a client without, it is the handle of a session,
//! which the model never sees.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, header};
use stayput_core::{EndReason, Handle, OpenOptions, OpenedSession, Session, SessionOpenError};
use stayput_identify::Cookie;
pub(crate) use stayput_identify::read_cookie as read;

use super::{FoundSession, RequestContext, read_connection_name, refusal::Refusal};
use crate::state::AppState;

/// Whether cookies are enabled.
pub(crate) fn is_on(app: &AppState) -> bool {
    app.identify.configured.name_sources.cookie
}

/// Opens the session of a client that has no connection. A request without a cookie gets a new session.
pub(super) async fn session(
    app: &Arc<AppState>,
    context: &RequestContext<'_>,
) -> Result<FoundSession, Refusal> {
    let failed = |error: SessionOpenError| {
        Refusal::for_open_error(&error, "Try again: you get a new session.")
    };
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
    found.map(FoundSession::from_existing).map_err(failed)
}

/// Returns the value of `Set-Cookie` that names the session of a call, for a client that has no connection.
pub(crate) async fn set_cookie(
    app: &AppState,
    headers: &HeaderMap,
    session: &Session,
) -> Option<HeaderValue> {
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

/// Sets the cookie that names the connection of a request again, if cookies are enabled, so that it lives as long as the
/// connection (R046).
pub(crate) fn renew_cookie<B>(app: &AppState, headers: &HeaderMap, response: &mut Response<B>) {
    if is_on(app)
        && let Some(name) = read_connection_name(app, headers)
        && let Some(line) = line(app, Some(&name))
    {
        response.headers_mut().insert(header::SET_COOKIE, line);
    }
}

/// Formats `Set-Cookie` for a secret, or for its deletion.
pub(crate) fn line(app: &AppState, secret: Option<&Handle>) -> Option<HeaderValue> {
    Cookie::default().set_cookie(secret, app.identify.expiry)
}

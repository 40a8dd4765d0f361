//! Name of the connection that a request of a legacy client belongs to.

use http::{HeaderMap, Response, header};
use stayput_core::Handle;

use super::{cookie, header_names};
use crate::state::AppState;

/// Returns the secret name of the request's connection, from the header `Mcp-Session-Id`, or else from the
/// cookie.
/// `None` if the value is not a valid name.
pub(crate) fn read_connection_name(app: &AppState, headers: &HeaderMap) -> Option<Handle> {
    let by_header =
        headers.get(&header_names::MCP_SESSION_ID).map(|id| id.to_str().unwrap_or_default());
    let by_cookie = || cookie::read(headers).filter(|_| cookie::is_on(app));
    by_header.or_else(by_cookie)?.parse().ok()
}

/// Sets the cookie that names the connection of a request again, if cookies are enabled, so that it lives as long as the
/// connection (R046).
pub(crate) fn renew_cookie<B>(app: &AppState, headers: &HeaderMap, response: &mut Response<B>) {
    if cookie::is_on(app)
        && let Some(name) = read_connection_name(app, headers)
        && let Some(line) = cookie::line(app, Some(&name))
    {
        response.headers_mut().insert(header::SET_COOKIE, line);
    }
}

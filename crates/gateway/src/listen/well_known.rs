//! Where a client that was turned away finds out whom to ask for a token (RFC 9728).

use http::Response;
use serde_json::json;

use crate::{
    reply::{self, Reply},
    state::AppState,
};

const PATH: &str = "/.well-known/oauth-protected-resource";

/// What is told of what is at a path; nothing if the path asks for something else, or there is nothing to
/// tell. Anybody may know it.
pub(super) fn of(app: &AppState, path: &str) -> Option<Response<Reply>> {
    let resource = path.strip_prefix(PATH)?;
    if !resource.is_empty() && !resource.starts_with('/') {
        return None;
    }
    let (jwt, url) = (app.owners.jwt.as_ref()?, app.rules.public_url.as_ref()?);
    let said = json!({
        "resource": format!("{url}{resource}"),
        "authorization_servers": [jwt.issuer],
        "bearer_methods_supported": ["header"],
    });
    Some(reply::message(said.to_string()))
}

/// The URL of what [`of`] tells.
pub(super) fn url(app: &AppState, path: &str) -> Option<String> {
    app.owners.jwt.as_ref()?;
    // What has no place in a header is left out of it.
    let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte));
    let path = if plain && path != "/" { path } else { "" };
    app.rules.public_url.as_ref().map(|url| format!("{url}{PATH}{path}"))
}

//! OAuth protected resource metadata (RFC 9728): tells a client that was refused where to get a token.

use http::Response;
use serde_json::json;

use crate::{
    reply::{self, Reply},
    state::AppState,
};

const PATH: &str = "/.well-known/oauth-protected-resource";

/// Metadata document for a path; `None` if the path is another one, or there is no metadata. The document is public.
pub(super) fn metadata(app: &AppState, path: &str) -> Option<Response<Reply>> {
    let resource = path.strip_prefix(PATH)?;
    if !resource.is_empty() && !resource.starts_with('/') {
        return None;
    }
    let (jwt, url) = (app.authenticator.jwt.as_ref()?, app.rules.public_url.as_ref()?);
    let metadata = json!({
        "resource": format!("{url}{resource}"),
        "authorization_servers": [jwt.issuer],
        "bearer_methods_supported": ["header"],
    });
    Some(reply::message(metadata.to_string()))
}

/// URL of the document that [`of`] returns.
pub(super) fn url(app: &AppState, path: &str) -> Option<String> {
    app.authenticator.jwt.as_ref()?;
    // A path with characters that a header cannot hold is left out.
    let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte));
    let path = if plain && path != "/" { path } else { "" };
    app.rules.public_url.as_ref().map(|url| format!("{url}{PATH}{path}"))
}

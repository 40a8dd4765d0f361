//! The `Accept` header.

use http::{HeaderMap, header};

/// Returns whether a client accepts this media type. Parameters and weights are ignored.
pub(crate) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let said = headers.get_all(header::ACCEPT);
    said.iter()
        .any(|said| said.to_str().is_ok_and(|said| said.contains(kind) || said.contains("*/*")))
}

//! Session name in a header.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use stayput_wire::header as mcp;

/// Returns all values of a header, decoded. A value that cannot be decoded is an error.
pub(super) fn values<'a>(
    headers: &'a HeaderMap,
    name: &'a HeaderName,
) -> impl Iterator<Item = Result<Cow<'a, str>, mcp::InvalidHeader>> + 'a {
    let values = headers.get_all(name).iter().map(|value| mcp::decode(value.as_bytes()));
    // A template in the client's configuration that was filled with nothing leaves an empty value.
    values.filter(|value| !matches!(value, Ok(text) if text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded() {
        let mut headers = HeaderMap::new();
        let name = &crate::identify::header_names::STAYPUT_SESSION;
        for value in ["key:a", "", "=?base64?a2V5OsO8?=", "=?base64?%?="] {
            headers.append(name, value.parse().unwrap());
        }
        let decoded: Vec<_> =
            values(&headers, name).map(|value| value.map(Cow::into_owned).ok()).collect();
        assert_eq!(decoded, [Some("key:a".to_owned()), Some("key:ü".to_owned()), None]);
    }
}

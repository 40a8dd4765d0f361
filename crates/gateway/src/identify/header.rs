//! The session in a header.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use stayput_wire::header as mcp;

/// All values of a header, decoded. What cannot be read is told as such.
pub(super) fn values<'a>(
    headers: &'a HeaderMap,
    name: &'a HeaderName,
) -> impl Iterator<Item = Result<Cow<'a, str>, mcp::InvalidHeader>> + 'a {
    let values = headers.get_all(name).iter().map(|value| mcp::decode(value.as_bytes()));
    // A template that had nothing to be filled with leaves an empty one.
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
        let said: Vec<_> =
            values(&headers, name).map(|value| value.map(Cow::into_owned).ok()).collect();
        assert_eq!(said, [Some("key:a".to_owned()), Some("key:ü".to_owned()), None]);
    }
}

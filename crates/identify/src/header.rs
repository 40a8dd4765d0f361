//! Session name in a header.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use stayput_wire::header as mcp;

/// Header `Stayput-Session`. A name that is passed as text is validated and hashed again on each lookup.
pub(crate) static STAYPUT_SESSION: HeaderName = HeaderName::from_static(mcp::STAYPUT_SESSION);

/// Returns all values of a header, decoded. A value that cannot be decoded is an error.
pub(crate) fn values<'a>(
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
        for value in ["key:a", "", "=?base64?a2V5OsO8?=", "=?base64?%?="] {
            headers.append(&STAYPUT_SESSION, value.parse().unwrap());
        }
        let decoded: Vec<_> = values(&headers, &STAYPUT_SESSION)
            .map(|value| value.map(Cow::into_owned).ok())
            .collect();
        assert_eq!(decoded, [Some("key:a".to_owned()), Some("key:ü".to_owned()), None]);
    }
}

//! User and password of a URL as a header (RFC 7617).

use ::http::HeaderValue;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use stayput_wire::percent;
use url::Url;

/// Returns the value of `Authorization` for the user and password of `url`, if it has any.
pub(super) fn authorization(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut pair = percent::decode(url.username()).into_owned();
    pair.push(b':');
    pair.extend_from_slice(&percent::decode(url.password().unwrap_or_default()));
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(&pair))).ok()?;
    // Hides the value in `Debug` of a header map.
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(url: &str) -> Option<String> {
        let value = authorization(&Url::parse(url).unwrap())?;
        assert!(value.is_sensitive());
        assert!(!format!("{value:?}").contains("Basic"));
        Some(value.to_str().unwrap().to_owned())
    }

    #[test]
    fn example_of_the_rfc_is_encoded() {
        let fields = header("https://Aladdin:open%20sesame@host/");
        assert_eq!(fields.unwrap(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }

    #[test]
    fn user_or_password_may_be_missing() {
        assert_eq!(header("https://ann@host/").unwrap(), "Basic YW5uOg==");
        assert_eq!(header("https://:key@host/").unwrap(), "Basic OmtleQ==");
        assert_eq!(header("https://host/"), None);
    }
}

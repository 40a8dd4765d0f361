//! The user and password of a URL as a header (RFC 7617).

use ::http::HeaderValue;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use url::Url;

/// What `Authorization` says for the user and password of `url`, if it names any.
pub(super) fn authorization(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut pair = decoded(url.username());
    pair.push(b':');
    pair.extend(decoded(url.password().unwrap_or_default()));
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(&pair))).ok()?;
    // `Debug` of a header map leaves it out.
    value.set_sensitive(true);
    Some(value)
}

/// `text` with each `%41` as the byte it stands for. What only looks like one stays as it is.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let pair = after.get(..2).filter(|_| first == b'%');
        // The parser of numbers would take a sign for a digit.
        let pair = pair.filter(|pair| pair.iter().all(u8::is_ascii_hexdigit));
        let digits = pair.and_then(|pair| std::str::from_utf8(pair).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
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
    fn the_example_of_the_rfc() {
        let said = header("https://Aladdin:open%20sesame@host/");
        assert_eq!(said.unwrap(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }

    #[test]
    fn a_part_may_be_missing() {
        assert_eq!(header("https://ann@host/").unwrap(), "Basic YW5uOg==");
        assert_eq!(header("https://:key@host/").unwrap(), "Basic OmtleQ==");
        assert_eq!(header("https://host/"), None);
    }

    #[test]
    fn a_percent_sign_may_be_one() {
        assert_eq!(decoded("a%4"), b"a%4");
        assert_eq!(decoded("%zz%41"), b"%zzA");
        assert_eq!(decoded("%"), b"%");
        assert_eq!(decoded("%+1"), b"%+1");
        assert_eq!(decoded("%C3%BC"), "ü".as_bytes());
    }
}

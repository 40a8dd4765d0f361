//! HTTP headers of both eras, and the encoding of their values.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Protocol version of a request. Both eras, from 2025-06-18 on.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// Legacy: connection id. Never sent to a modern client.
pub const MCP_SESSION_ID: &str = "mcp-session-id";
/// Legacy: id of the last event received, to resume a stream.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// Modern: method of the body.
pub const METHOD: &str = "mcp-method";
/// Modern: subject of the method, see [`name_member`]. Can be [encoded](encode).
pub const NAME: &str = "mcp-name";
/// Modern: prefix of headers with arguments. Can be [encoded](encode).
pub const PARAM_PREFIX: &str = "mcp-param-";
/// Tells proxies not to buffer a stream, with the value `no`.
pub const ACCEL_BUFFERING: &str = "x-accel-buffering";
/// Stayput: session by handle or `key:…`.
pub const STAYPUT_SESSION: &str = "stayput-session";

/// Cookie that can identify a session, if enabled.
pub const SESSION_COOKIE: &str = "mcp_session_id";

/// Media type of one message.
pub const JSON: &str = "application/json";
/// Media type of an event stream.
pub const EVENT_STREAM: &str = "text/event-stream";
/// Media types that a client must accept.
pub const ACCEPT_BOTH: &str = "application/json, text/event-stream";

/// Returns the member of the params of `method` that [`NAME`] contains.
#[must_use]
pub fn name_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// Returns the values of the session cookies in a `Cookie` header.
///
/// ```
/// use stayput_wire::header;
///
/// assert_eq!(header::session_cookies("a=1; mcp_session_id=sp_x").next(), Some("sp_x"));
/// assert_eq!(header::session_cookies("xmcp_session_id=1").next(), None);
/// ```
pub fn session_cookies(line: &str) -> impl Iterator<Item = &str> {
    let pairs = line.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == SESSION_COOKIE).map(|(_, value)| value)
}

/// Returns the `Set-Cookie` header for the session cookie. It is `HttpOnly`. `sites` is the value of `SameSite`,
/// `age` the lifetime in seconds; without it the cookie ends with the browser.
///
/// ```
/// use stayput_wire::header;
///
/// let line = header::set_session_cookie("sp_x", true, "Strict", Some(60));
/// assert_eq!(line, "mcp_session_id=sp_x; Path=/; HttpOnly; Secure; SameSite=Strict; Max-Age=60");
/// ```
#[must_use]
pub fn set_session_cookie(value: &str, secure: bool, sites: &str, age: Option<u64>) -> String {
    let secure = if secure { "; Secure" } else { "" };
    let age = age.map(|age| format!("; Max-Age={age}")).unwrap_or_default();
    format!("{SESSION_COOKIE}={value}; Path=/; HttpOnly{secure}; SameSite={sites}{age}")
}

const OPENING: &str = "=?base64?";
const CLOSING: &str = "?=";

/// Encodes a header value: unchanged, or in base64 if a header cannot contain it.
///
/// ```
/// use stayput_wire::header;
///
/// assert_eq!(header::encode("us-west1"), "us-west1");
/// assert_eq!(header::encode("Hello, 世界"), "=?base64?SGVsbG8sIOS4lueVjA==?=");
/// assert_eq!(header::encode(" padded "), "=?base64?IHBhZGRlZCA=?=");
/// ```
#[must_use]
pub fn encode(value: &str) -> Cow<'_, str> {
    let padded = value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']);
    let lookalike = value.starts_with(OPENING) && value.ends_with(CLOSING);
    if is_plain(value.as_bytes()) && !padded && !lookalike {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{OPENING}{}{CLOSING}", STANDARD.encode(value)))
}

/// Decodes a header value.
///
/// ```
/// use stayput_wire::header;
///
/// assert_eq!(header::decode(b"us-west1")?, "us-west1");
/// assert_eq!(header::decode(b"=?base64?SGVsbG8sIOS4lueVjA==?=")?, "Hello, 世界");
/// assert!(header::decode(b"=?base64?%%%?=").is_err());
/// # Ok::<(), header::InvalidHeader>(())
/// ```
///
/// # Errors
/// Returns an error if the value has bytes that are not allowed in a header, or is marked as base64 but is not base64
/// of UTF-8.
pub fn decode(value: &[u8]) -> Result<Cow<'_, str>, InvalidHeader> {
    let text = std::str::from_utf8(value).ok().filter(|_| is_plain(value));
    let text = text.ok_or(InvalidHeader::Bytes)?;
    let Some(inner) = text.strip_prefix(OPENING).and_then(|rest| rest.strip_suffix(CLOSING)) else {
        return Ok(Cow::Borrowed(text));
    };
    let bytes = STANDARD.decode(inner).map_err(|_| InvalidHeader::Base64)?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| InvalidHeader::NotUtf8)
}

/// Returns whether RFC 9110 allows the value: visible ASCII, space and tab.
fn is_plain(value: &[u8]) -> bool {
    value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}

/// Reason why a header value cannot be decoded. The value is not repeated, because it may be an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHeader {
    /// Bytes that are not allowed in a header.
    #[error("the header has bytes other than visible ASCII, space and tab; encode its value")]
    Bytes,
    /// Value marked as base64 that is not canonical base64.
    #[error("the header is marked as base64 but is not; use the standard alphabet with padding")]
    Base64,
    /// Base64 of bytes that are not UTF-8.
    #[error("the header is base64 of something that is not UTF-8")]
    NotUtf8,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses the examples of the specification.
    #[test]
    fn values_are_encoded_as_specified() {
        for (value, header) in [
            ("us-west1", "us-west1"),
            ("", ""),
            ("two words\tand a tab", "two words\tand a tab"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("\u{7f}", "=?base64?fw==?="),
        ] {
            assert_eq!(encode(value), header);
            assert_eq!(decode(header.as_bytes()).unwrap(), value);
        }
    }

    #[test]
    fn value_with_one_mark_is_not_encoded() {
        for value in ["=?base64?abc", "abc?=", "=?BASE64?abc?=", "=?base64?="] {
            assert_eq!(decode(value.as_bytes()).unwrap(), value);
            assert_eq!(decode(encode(value).as_bytes()).unwrap(), value);
        }
    }

    #[test]
    fn invalid_header_value_is_refused() {
        assert_eq!(decode(b"a\r\nb"), Err(InvalidHeader::Bytes));
        assert_eq!(decode("ü".as_bytes()), Err(InvalidHeader::Bytes));
        assert_eq!(decode(b"=?base64?abc?="), Err(InvalidHeader::Base64));
        assert_eq!(decode(b"=?base64?_-8=?="), Err(InvalidHeader::Base64));
        assert_eq!(decode(b"=?base64?//8=?="), Err(InvalidHeader::NotUtf8));
        assert_eq!(decode(b"=?base64??=").unwrap(), "");
    }

    /// `http::HeaderName::from_static` requires lower case.
    #[test]
    fn names_are_in_lower_case() {
        let names = [
            PROTOCOL_VERSION,
            MCP_SESSION_ID,
            LAST_EVENT_ID,
            METHOD,
            NAME,
            PARAM_PREFIX,
            ACCEL_BUFFERING,
            STAYPUT_SESSION,
        ];
        assert!(names.iter().all(|name| !name.contains(|c: char| c.is_ascii_uppercase())));
    }

    #[test]
    fn name_member_depends_on_the_method() {
        assert_eq!(name_member("tools/call"), Some("name"));
        assert_eq!(name_member("resources/read"), Some("uri"));
        assert_eq!(name_member("tasks/get"), Some("taskId"));
        assert_eq!(name_member("tools/list"), None);
    }
}

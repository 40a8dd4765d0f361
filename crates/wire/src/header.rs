//! HTTP headers of both eras, and how a value that is no header value travels in one.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The revision a request speaks. Both eras, from 2025-06-18 on.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// Legacy: the connection. Never sent to a modern client.
pub const SESSION_ID: &str = "mcp-session-id";
/// Legacy: the last event that came, from which a stream is taken up again.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// Modern: the method of the body.
pub const METHOD: &str = "mcp-method";
/// Modern: what the method is about, see [`name_source`]. Can be [encoded](encode).
pub const NAME: &str = "mcp-name";
/// Modern: what the name of a header begins with that carries an argument. Can be [encoded](encode).
pub const PARAM_PREFIX: &str = "mcp-param-";
/// Tells proxies to pass a stream on as it comes, with the value `no`.
pub const ACCEL_BUFFERING: &str = "x-accel-buffering";
/// Ours: the session that is meant, by handle or `key:…`.
pub const STAYPUT_SESSION: &str = "stayput-session";

/// The cookie that can name a connection, where that is switched on.
pub const SESSION_COOKIE: &str = "mcp_session_id";

/// The media type of one message.
pub const JSON: &str = "application/json";
/// The media type of a stream of events.
pub const EVENT_STREAM: &str = "text/event-stream";
/// What a client has to accept.
pub const ACCEPT_BOTH: &str = "application/json, text/event-stream";

/// Which member of the params of `method` stands in [`NAME`], if one does.
#[must_use]
pub fn name_source(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// What the cookie that names a session says, in one line of `Cookie`.
///
/// ```
/// use stayput_wire::header;
///
/// assert_eq!(header::session_cookie("a=1; mcp_session_id=sp_x"), Some("sp_x"));
/// assert_eq!(header::session_cookie("xmcp_session_id=1"), None);
/// ```
#[must_use]
pub fn session_cookie(line: &str) -> Option<&str> {
    let mut pairs = line.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == SESSION_COOKIE).map(|(_, value)| value)
}

/// `Set-Cookie` for it: no script reads it. `sites` is what `SameSite` says, `age` the seconds that it lives;
/// without them it goes with the browser.
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

/// `value` as it can stand in a header: as it is, or in base64 if no header could carry it.
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

/// What the header value `value` says.
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
/// If it has bytes that no header carries, or what stands between the marks is not the base64 of a
/// text in UTF-8.
pub fn decode(value: &[u8]) -> Result<Cow<'_, str>, InvalidHeader> {
    let text = std::str::from_utf8(value).ok().filter(|_| is_plain(value));
    let text = text.ok_or(InvalidHeader::Bytes)?;
    let Some(inner) = text.strip_prefix(OPENING).and_then(|rest| rest.strip_suffix(CLOSING)) else {
        return Ok(Cow::Borrowed(text));
    };
    let bytes = STANDARD.decode(inner).map_err(|_| InvalidHeader::Base64)?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| InvalidHeader::NotUtf8)
}

/// Visible ASCII, space and tab: what RFC 9110 lets into a header.
fn is_plain(value: &[u8]) -> bool {
    value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}

/// Why a header value cannot be read. The value is not repeated: it comes from arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHeader {
    /// It has bytes that no header carries.
    #[error("the header has bytes other than visible ASCII, space and tab; encode its value")]
    Bytes,
    /// It is marked as base64 and is not, or not in the one spelling there is.
    #[error("the header is marked as base64 but is not; use the standard alphabet with padding")]
    Base64,
    /// It is base64 of something that is not text.
    #[error("the header is base64 of something that is not UTF-8")]
    NotUtf8,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the specification.
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
    fn only_what_wears_both_marks_is_encoded() {
        for value in ["=?base64?abc", "abc?=", "=?BASE64?abc?=", "=?base64?="] {
            assert_eq!(decode(value.as_bytes()).unwrap(), value);
            assert_eq!(decode(encode(value).as_bytes()).unwrap(), value);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        assert_eq!(decode(b"a\r\nb"), Err(InvalidHeader::Bytes));
        assert_eq!(decode("ü".as_bytes()), Err(InvalidHeader::Bytes));
        assert_eq!(decode(b"=?base64?abc?="), Err(InvalidHeader::Base64));
        assert_eq!(decode(b"=?base64?_-8=?="), Err(InvalidHeader::Base64));
        assert_eq!(decode(b"=?base64?//8=?="), Err(InvalidHeader::NotUtf8));
        assert_eq!(decode(b"=?base64??=").unwrap(), "");
    }

    /// `http::HeaderName::from_static` takes nothing else.
    #[test]
    fn names_are_in_lower_case() {
        let names = [
            PROTOCOL_VERSION,
            SESSION_ID,
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
    fn the_name_comes_from_where_the_method_says() {
        assert_eq!(name_source("tools/call"), Some("name"));
        assert_eq!(name_source("resources/read"), Some("uri"));
        assert_eq!(name_source("tasks/get"), Some("taskId"));
        assert_eq!(name_source("tools/list"), None);
    }
}

//! Headers that matter for sessions.

use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use stayput_wire::{Era, header as mcp};

/// Headers that matter for sessions, found in one pass, which is faster than one lookup each.
pub(crate) struct RequestHeaders<'a> {
    pub(crate) headers: &'a HeaderMap,
    /// Whether the body is JSON.
    pub(crate) is_json: bool,
    /// Whether `Mcp-Protocol-Version` is of the modern era.
    pub(crate) is_modern: bool,
    /// `Mcp-Method`, which modern clients send.
    pub(crate) method: Option<&'a str>,
    /// Whether there is a `Stayput-Session` header.
    pub(crate) has_session_header: bool,
    /// `Mcp-Session-Id`, whatever the era of the client.
    connection: Option<&'a HeaderValue>,
}

impl<'a> RequestHeaders<'a> {
    pub(crate) fn read(headers: &'a HeaderMap) -> Self {
        let (mut content_type, mut version, mut method) = (None, None, None);
        let (mut connection, mut has_session_header) = (None, None);
        for (name, value) in headers {
            let place = match name.as_str() {
                mcp::MCP_SESSION_ID => &mut connection,
                mcp::PROTOCOL_VERSION => &mut version,
                mcp::METHOD => &mut method,
                mcp::STAYPUT_SESSION => &mut has_session_header,
                _ if name == CONTENT_TYPE => &mut content_type,
                _ => continue,
            };
            // The first of several values counts.
            place.get_or_insert(value);
        }
        let text = |value: Option<&'a HeaderValue>| value.and_then(|it| it.to_str().ok());
        Self {
            headers,
            is_json: content_type.is_some_and(|it| it.as_bytes().starts_with(mcp::JSON.as_bytes())),
            is_modern: text(version).is_some_and(|it| Era::from_version(it) == Era::Modern),
            method: text(method),
            has_session_header: has_session_header.is_some(),
            connection,
        }
    }

    /// Returns `Mcp-Session-Id`, unless the client is modern. `is_modern` is an argument because the body can say so,
    /// too.
    pub(crate) fn connection_id(&self, is_modern: bool) -> Option<&'a HeaderValue> {
        self.connection.filter(|_| !is_modern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R063: the first of several values counts, and other headers are ignored.
    #[test]
    fn headers_are_read_and_the_first_value_wins() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("accept", "text/event-stream"),
            ("content-type", "application/json; charset=utf-8"),
            ("mcp-session-id", "7"),
            ("mcp-session-id", "8"),
            ("mcp-protocol-version", "2025-11-25"),
            ("mcp-protocol-version", "2026-07-28"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let head = RequestHeaders::read(&headers);
        assert!(
            head.is_json && !head.is_modern && !head.has_session_header && head.method.is_none()
        );
        assert_eq!(head.connection_id(false).unwrap(), "7");
        assert!(head.connection_id(true).is_none(), "a modern client has no connection");
        headers.insert("mcp-protocol-version", HeaderValue::from_static("2026-07-28"));
        headers.insert("mcp-method", HeaderValue::from_static("tools/call"));
        headers.insert("stayput-session", HeaderValue::from_static("key:x"));
        headers.remove("content-type");
        let head = RequestHeaders::read(&headers);
        assert!(!head.is_json && head.is_modern && head.has_session_header);
        assert_eq!(head.method, Some("tools/call"));
    }
}

//! Classification of error answers: is the session behind a link unknown?
//!
//! Servers report an unknown session in many ways: with the 404 of the specification, or with 400, 401, 410,
//! 500, 503 or a JSON-RPC error with various codes, because proxies and frameworks differ. Other errors use
//! the same codes, so that beyond 404 and 410 only the error text decides. Without a session id nothing can
//! be lost.

use stayput_wire::{Code, Message, Raw};

/// Most bytes of an error body that are read.
pub(crate) const MAX_ERROR_BODY: usize = 64 << 10;

/// Meaning of an HTTP error for its request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ErrorMeaning {
    /// The session is unknown, and the request was not executed.
    SessionGone,
    /// The body is a JSON-RPC error, which is an answer.
    Answer,
    /// The credentials were refused.
    Unauthorized,
    /// The server refused the request without executing it.
    Refused,
    /// The outcome is unknown.
    Unknown,
}

/// Classifies an answer by its status and body. `attached` says whether the request named a session.
pub(crate) fn of_status(status: u16, body: &[u8], attached: bool) -> ErrorMeaning {
    let message = Message::parse(body).ok().filter(|message| message.error().is_some());
    if attached {
        let code = message.as_ref().and_then(code);
        let words = match &message {
            Some(message) => message.error().map(words).unwrap_or_default(),
            None => String::from_utf8_lossy(&body[..body.len().min(1024)]).into_owned(),
        };
        // `INVALID_PARAMS` may be about a parameter that names another session. "Not initialized" counts only
        // for status 400 with these exact words: elsewhere it is about something else.
        let gone = code != Some(Code::INVALID_PARAMS) && says_session_is_unknown(&words)
            || status == 400 && has(&words, "server not initialized");
        // Modern servers also use 404 for an unknown method.
        if gone || status == 410 || (status == 404 && code != Some(Code::METHOD_NOT_FOUND)) {
            return ErrorMeaning::SessionGone;
        }
    }
    match status {
        // Even with a JSON-RPC error in the body: the useful data is in the headers.
        401 => ErrorMeaning::Unauthorized,
        _ if message.is_some() => ErrorMeaning::Answer,
        403 => ErrorMeaning::Unauthorized,
        400..=499 => ErrorMeaning::Refused,
        _ => ErrorMeaning::Unknown,
    }
}

/// Whether a JSON-RPC error in a successful answer says that the session is unknown.
pub(crate) fn of_error(error: Raw<'_>) -> bool {
    let code = error.find(&["code"]).and_then(Raw::integer);
    // An SDK sent 32600 without the sign for years.
    let used = matches!(code, Some(-32000 | -32001 | -32600 | 32600 | -32603));
    used && says_session_is_unknown(&words(error))
}

fn code(message: &Message<'_>) -> Option<Code> {
    message.error()?.find(&["code"])?.integer().map(Code)
}

fn words(error: Raw<'_>) -> String {
    error.find(&["message"]).and_then(Raw::text).unwrap_or_default().into_owned()
}

/// Whether a text says that a session is gone, rather than something else about sessions.
fn says_session_is_unknown(words: &str) -> bool {
    const PHRASES: [&str; 14] = [
        "session not found",
        "session expired",
        "session has expired",
        "session terminated",
        "session has been terminated",
        "session closed",
        "session does not exist",
        "session no longer",
        "session id not found",
        "no valid session",
        "no such session",
        "invalid session",
        "unknown session",
        "session invalid",
    ];
    PHRASES.iter().any(|gone| has(words, gone))
}

/// Whether `words` contains `those`, ignoring case, `_` and `-`.
fn has(words: &str, those: &str) -> bool {
    words.to_ascii_lowercase().replace(['_', '-'], " ").contains(those)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i64, message: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"message":"{message}"}}}}"#)
    }

    /// E08–E12: the error text decides where the status is not enough.
    #[test]
    fn unknown_session_is_recognised_in_many_forms() {
        for (status, body) in [
            (404, String::new()),
            (404, "Session not found".to_owned()),
            (404, error(-32001, "Session not found")),
            (404, error(32600, "Session terminated")),
            (410, "Gone".to_owned()),
            (400, error(-32000, "Bad Request: No valid session ID provided")),
            (400, error(-32000, "Bad Request: Server not initialized")),
            (401, "invalid session".to_owned()),
            (500, error(-32603, "Session expired")),
            (503, "unknown session".to_owned()),
        ] {
            assert_eq!(
                of_status(status, body.as_bytes(), true),
                ErrorMeaning::SessionGone,
                "{status} {body}"
            );
            let without = of_status(status, body.as_bytes(), false);
            assert_ne!(without, ErrorMeaning::SessionGone, "{status} {body}");
        }
    }

    #[test]
    fn other_errors_keep_the_session() {
        let gone = ErrorMeaning::SessionGone;
        for (status, body) in [
            (400, error(-32000, "Connection closed")),
            (400, error(-32602, "unknown tool")),
            (401, "who are you?".to_owned()),
            (403, String::new()),
            (400, error(-32602, "unknown session")),
            (404, error(-32601, "Method not found")),
            (500, error(-32603, "database not initialized")),
            (409, error(-32000, "Conflict: Only one SSE stream is allowed per session")),
            (429, "slow down".to_owned()),
            (500, "Internal Server Error".to_owned()),
            (502, String::new()),
            (503, "no healthy upstream".to_owned()),
        ] {
            assert_ne!(of_status(status, body.as_bytes(), true), gone, "{status} {body}");
        }
        assert_eq!(of_status(401, b"", true), ErrorMeaning::Unauthorized);
        let body = error(-32001, "Unauthorized");
        assert_eq!(of_status(401, body.as_bytes(), true), ErrorMeaning::Unauthorized);
        assert_eq!(of_status(429, b"", true), ErrorMeaning::Refused);
        assert_eq!(of_status(502, b"", true), ErrorMeaning::Unknown);
    }

    #[test]
    fn error_with_status_200_can_end_the_session() {
        let judge = |code, words| {
            let text = error(code, words);
            of_error(Message::parse(text.as_bytes()).unwrap().error().unwrap())
        };
        assert!(judge(-32001, "Session not found"));
        assert!(judge(32600, "Session terminated"));
        assert!(judge(-32600, "session_expired"));
        assert!(!judge(-32000, "Connection closed"));
        assert!(!judge(-32602, "session not found"), "a parameter was wrong, not the session");
        assert!(!judge(-32603, "the browser session is busy"));
        assert!(!judge(-32603, "Language server not initialized"));
    }
}

//! Errors of sessions and state, with their HTTP status, JSON-RPC code and message.
//!
//! | case | HTTP | JSON-RPC | what the model reads |
//! |---|---|---|---|
//! | unknown session, or of another owner | 404 | −32602 | how to get a new one |
//! | session expired, ended or evicted | 410 | −31001 | reason, and how to get a new one |
//! | session started again, its state is lost | 409 | −31001 | set up again what you need |
//! | request names no session | 400 | −32602 | a handle to repeat the call with |
//! | two different names, or a malformed one | 400 | −32602 | which ones |
//! | owner is at its limit of sessions | 429 | −32603 | end one, or later |
//! | value too large | 413 | −32602 | the limit |
//! | store unavailable | 503 | −32603 | try again later |
//! | mistake in the server | 500 | −32603 | that it is one |

use std::borrow::Cow;

use http::StatusCode;
use rmcp::{
    ErrorData,
    model::{ContentBlock, ErrorCode, IntoContents},
};
use serde_json::json;
use stayput_core::{Handle, SessionOpenError, StateError, StoreError};
use stayput_identify::{
    ArgumentName,
    text::{self, HandlePlace},
    tools::{SessionTool, ToolError},
};
use stayput_wire::{Code, meta};

/// Error of a session or its state.
///
/// In the result of a tool it is a text that the model can act on. `?` converts it into the error of a prompt or a
/// resource, and axum responds with its status.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No session: unknown, of another owner, ended, over the limit, or the store is unavailable.
    #[error("{}", session_message(.0))]
    Session(#[from] SessionOpenError),
    /// The session had ended and starts again with empty state. Reported once.
    #[error(
        "Nothing was done: {reason}. The session starts again with empty state: set up again what you need, then \
         repeat the call."
    )]
    Lost {
        /// Reason why the earlier session ended.
        reason: String,
    },
    /// The request names no session.
    #[error("{}", missing_session_message(.offer.as_ref()))]
    MissingSession {
        /// Handle of a session that was minted for the caller.
        offer: Option<Handle>,
    },
    /// The name of the session is malformed, or the request has two different names.
    #[error("Nothing was done: {0}.")]
    InvalidName(Cow<'static, str>),
    /// The state could not be read or changed.
    #[error("{0}")]
    State(StateError),
    /// The handler runs outside of the layer or the transport that provides the session.
    #[error(
        "this server asked for session state outside of a session; wrap the service by `ServerSessions::layer`, or \
         the transport by `ServerSessions::wrap_transport`"
    )]
    LayerMissing,
}

impl Error {
    /// Returns the HTTP status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Session(SessionOpenError::Unknown) => StatusCode::NOT_FOUND,
            Self::Session(SessionOpenError::Ended(_)) => StatusCode::GONE,
            Self::Session(SessionOpenError::AtCapacity { .. }) => StatusCode::TOO_MANY_REQUESTS,
            Self::Session(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Lost { .. } => StatusCode::CONFLICT,
            Self::MissingSession { .. } | Self::InvalidName(_) => StatusCode::BAD_REQUEST,
            Self::State(StateError::Store(StoreError::TooLarge { .. })) => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            Self::State(StateError::Contended { .. } | StateError::Store(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::State(_) | Self::LayerMissing => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the JSON-RPC code. It is used where there is no tool result.
    #[must_use]
    pub fn code(&self) -> i64 {
        let code = match self {
            Self::Session(SessionOpenError::Ended(_)) | Self::Lost { .. } => Code::STATE_LOST,
            _ if self.status().is_client_error()
                && self.status() != StatusCode::TOO_MANY_REQUESTS =>
            {
                Code::INVALID_PARAMS
            }
            _ => Code::INTERNAL_ERROR,
        };
        code.0
    }

    /// Returns the handle that is offered to the caller.
    #[must_use]
    pub fn offer(&self) -> Option<&Handle> {
        match self {
            Self::MissingSession { offer } => offer.as_ref(),
            _ => None,
        }
    }
}

fn session_message(error: &SessionOpenError) -> String {
    let start = text::start_again(&SessionTool::Start.name(false));
    text::refusal(error, &start)
}

fn missing_session_message(offer: Option<&Handle>) -> String {
    match offer {
        Some(handle) => text::offer(handle, &HandlePlace::Argument(ArgumentName::Plain)),
        None => format!(
            "Nothing was done: this server keeps state between calls, and nothing says which session is meant. \
             Name it: a session_id of `session_start`, or `key:` and a name, as the argument `session_id` of a \
             tool, in `_meta[\"{}\"]`, or in the header `Stayput-Session`.",
            meta::SESSION
        ),
    }
}

impl From<StateError> for Error {
    fn from(error: StateError) -> Self {
        Self::State(error)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Session(error.into())
    }
}

impl From<ToolError> for Error {
    fn from(error: ToolError) -> Self {
        Self::InvalidName(error.to_string().into())
    }
}

impl IntoContents for Error {
    fn into_contents(self) -> Vec<ContentBlock> {
        vec![ContentBlock::text(self.to_string())]
    }
}

/// Member of the error data that marks the errors of this crate.
pub(crate) const ERROR_MARKER: &str = "dev.stayput/refused";

impl From<Error> for ErrorData {
    fn from(error: Error) -> Self {
        let mut data = json!({ ERROR_MARKER: error.status().as_u16() });
        if let Some(offer) = error.offer() {
            data[meta::SESSION] = offer.expose().into();
        }
        let code = i32::try_from(error.code()).unwrap_or(ErrorCode::INTERNAL_ERROR.0);
        Self::new(ErrorCode(code), error.to_string(), Some(data))
    }
}

#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for Error {
    fn into_response(self) -> axum_core::response::Response {
        (self.status(), self.to_string()).into_response()
    }
}

#[cfg(test)]
mod tests {
    use stayput_core::{Expiry, Owner, Record, Timestamp};

    use super::*;

    /// R062, E30: every error matches its row of the table, and only the offered handle reveals a secret.
    #[test]
    fn every_error_matches_the_table() {
        let mut over = Record::new(Owner::local(), Expiry::default(), Timestamp::from_millis(1));
        over.end(stayput_core::EndReason::Idle, Timestamp::from_millis(2));
        let large =
            StoreError::TooLarge { kind: stayput_core::LimitKind::Value, limit: 1, size: 2 };
        let away = || StoreError::Unavailable { store: "test", source: "secret".into() };
        let table: [(Error, u16, i64, &str); 10] = [
            (SessionOpenError::Unknown.into(), 404, -32602, "no such session"),
            (SessionOpenError::Ended(over.into()).into(), 410, -31001, "expired after 30 min idle"),
            (SessionOpenError::AtCapacity { limit: 3 }.into(), 429, -32603, "3 live sessions"),
            (away().into(), 503, -32603, "does not answer"),
            (Error::Lost { reason: "it expired".into() }, 409, -31001, "starts again"),
            (Error::MissingSession { offer: None }, 400, -32602, "Name it"),
            (Error::InvalidName("two names".into()), 400, -32602, "two names"),
            (StateError::Store(large).into(), 413, -32602, "at most 1"),
            (StateError::Store(away()).into(), 503, -32603, "does not answer"),
            (Error::LayerMissing, 500, -32603, "ServerSessions::layer"),
        ];
        for (error, status, code, words) in table {
            let message = error.to_string();
            assert_eq!((error.status().as_u16(), error.code()), (status, code), "{message}");
            assert!(message.contains(words) && !message.contains("secret"), "{message}");
        }
        let handle = Handle::generate();
        let offer = Error::MissingSession { offer: Some(handle.clone()) };
        assert!(offer.to_string().contains(handle.expose()));
        assert!(!format!("{offer:?}").contains(handle.expose()));
    }
}

//! What can go wrong, and what everybody is told: one table.
//!
//! | what | HTTP | JSON-RPC | what the model reads |
//! |---|---|---|---|
//! | no such session, or somebody else's | 404 | −32602 | get a new one |
//! | over: expired, ended, evicted | 410 | −31001 | reason, and get a new one |
//! | begun anew, what was there is gone | 409 | −31001 | set up again what you need |
//! | nothing names a session | 400 | −32602 | a handle to repeat the call with |
//! | two names, or no name at all | 400 | −32602 | which ones |
//! | as many sessions as allowed | 429 | −32603 | end one, or later |
//! | a value too large | 413 | −32602 | the limit |
//! | the store does not answer | 503 | −32603 | try again later |
//! | the server's own mistake | 500 | −32603 | that it is one |

use std::borrow::Cow;

use http::StatusCode;
use rmcp::{
    ErrorData,
    model::{ContentBlock, ErrorCode, IntoContents},
};
use serde_json::json;
use stayput_core::{Handle, OpenError, StateError, StoreError};
use stayput_wire::{Code, meta};

/// Why there is no session, or its state could not be read or changed.
///
/// As the error of a tool it is what a model can read and act on; `?` turns it into the error of a prompt or a
/// resource, and axum answers it with its status.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no session to use: unknown, foreign, over, too many, or the store is away.
    #[error("{}", session_message(.0))]
    Session(#[from] OpenError),
    /// The session was over, and begins anew: nothing of before is there. Told once.
    #[error(
        "Nothing was done: {reason}. It begins anew with nothing in it: set up again what you need, then \
         repeat the call."
    )]
    Lost {
        /// What became of the session of before.
        reason: String,
    },
    /// Nothing says which session is info.
    #[error("{}", missing_session_message(.offer.as_ref()))]
    MissingSession {
        /// A handle that was made for whoever asks.
        offer: Option<Handle>,
    },
    /// What names the session is none, or there are two.
    #[error("Nothing was done: {0}.")]
    InvalidName(Cow<'static, str>),
    /// The state could not be read or changed.
    #[error("{0}")]
    State(StateError),
    /// The handler runs without the layer or the transport that tells the session.
    #[error(
        "this server asked for the state of a session where none is kept; put `ServerSessions::layer` around the \
         service, or serve it over `ServerSessions::wrap_transport`"
    )]
    LayerMissing,
}

impl Error {
    /// The status for it.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Session(OpenError::Unknown) => StatusCode::NOT_FOUND,
            Self::Session(OpenError::Over(_)) => StatusCode::GONE,
            Self::Session(OpenError::AtCapacity { .. }) => StatusCode::TOO_MANY_REQUESTS,
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

    /// The code for it where there is no tool to tell.
    #[must_use]
    pub fn code(&self) -> i64 {
        let code = match self {
            Self::Session(OpenError::Over(_)) | Self::Lost { .. } => Code::STATE_LOST,
            _ if self.status().is_client_error()
                && self.status() != StatusCode::TOO_MANY_REQUESTS =>
            {
                Code::INVALID_PARAMS
            }
            _ => Code::INTERNAL_ERROR,
        };
        code.0
    }

    /// The handle that came with it.
    #[must_use]
    pub fn offer(&self) -> Option<&Handle> {
        match self {
            Self::MissingSession { offer } => offer.as_ref(),
            _ => None,
        }
    }
}

/// Foreign and unknown, in the same words.
fn session_message(error: &OpenError) -> String {
    match error {
        OpenError::Unknown => {
            "There is no such session for you: it is over, or never was. Nothing was done. \
             Call `session_start` for a new one, or leave the session_id out."
                .to_owned()
        }
        OpenError::Over(_) => format!(
            "Nothing was done: {error}. Call `session_start` for a new one, or leave the session_id out."
        ),
        error => format!("Nothing was done: {error}."),
    }
}

fn missing_session_message(offer: Option<&Handle>) -> String {
    match offer {
        Some(handle) => format!(
            "Nothing was done: this server keeps state between calls, and nothing says which session the call \
             belongs to. A session is ready for this conversation: repeat the call with `\"session_id\": \
             \"{}\"` among its arguments, pass it in every later call of this conversation, keep it when the \
             conversation is summarised, and use it for no other one.",
            handle.expose()
        ),
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

impl IntoContents for Error {
    fn into_contents(self) -> Vec<ContentBlock> {
        vec![ContentBlock::text(self.to_string())]
    }
}

/// What an error of ours has in its data, so that it can be told from others.
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

    /// R062, E30: every error has its line in the table, and no line a secret but the one that is given out.
    #[test]
    fn the_table_holds() {
        let mut over = Record::new(Owner::local(), Expiry::default(), Timestamp::from_millis(1));
        over.end(stayput_core::EndReason::Idle, Timestamp::from_millis(2));
        let large =
            StoreError::TooLarge { measure: stayput_core::Measure::Value, limit: 1, size: 2 };
        let away = || StoreError::Unavailable { store: "test", source: "secret".into() };
        let table: [(Error, u16, i64, &str); 10] = [
            (OpenError::Unknown.into(), 404, -32602, "no such session"),
            (OpenError::Over(over.into()).into(), 410, -31001, "expired after 30 min idle"),
            (OpenError::AtCapacity { limit: 3 }.into(), 429, -32603, "3 live sessions"),
            (away().into(), 503, -32603, "does not answer"),
            (Error::Lost { reason: "it expired".into() }, 409, -31001, "begins anew"),
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

//! What can go wrong.

use std::{fmt, sync::Arc};

use stayput_core::{Generation, SessionId};
use stayput_upstream::{CallError, Delivery, LossReason};

/// Why there is no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing says which session a call belongs to.
    #[error(
        "this call belongs to no session: make it inside `hub.run(…)`, on a session from \
         `hub.session(…)`, after `hub.automatic(…)`, or with `ephemeral()`"
    )]
    NoSession,
    /// There is no server of this name.
    #[error("there is no server `{server}`; there are: {known}")]
    UnknownServer {
        /// What was asked for.
        server: String,
        /// What there is.
        known: String,
    },
    /// This sub-agent may not use the server.
    #[error("`{server}` is denied to this sub-agent")]
    Denied {
        /// The server.
        server: String,
    },
    /// There is no session of this name.
    #[error("there is no session of this name; `session` makes one")]
    UnknownSession,
    /// The name is taken.
    #[error("there is a session `{name}` already; find it, or choose another name")]
    Taken {
        /// The name.
        name: String,
    },
    /// The session was ended.
    #[error("session {session} was ended; open another one")]
    Ended {
        /// Its id.
        session: SessionId,
    },
    /// The hub was closed.
    #[error("the hub is closed")]
    Closed,
    /// The state behind the session is gone. See [`Error::is_state_lost`].
    #[error(transparent)]
    StateLost(StateLost),
    /// The server cannot be reached or started.
    #[error("`{server}` cannot be used: {source}")]
    ServerFailed {
        /// The server.
        server: String,
        /// What went wrong.
        source: Arc<stayput_upstream::OpenError>,
    },
    /// The call has no answer.
    #[error("the call to `{server}` failed: {source}")]
    CallFailed {
        /// The server.
        server: String,
        /// What went wrong.
        source: CallError,
    },
    /// The server answered with an error of the protocol.
    #[error("`{server}` answered with an error: {message} ({code})")]
    Refused {
        /// The server.
        server: String,
        /// Its code.
        code: i64,
        /// What it said.
        message: String,
        /// The whole error, as JSON.
        raw: Box<str>,
    },
    /// The session cannot be opened.
    #[error(transparent)]
    Session(Arc<stayput_core::OpenError>),
    /// Something that was given makes no sense.
    #[error("{0}")]
    Invalid(String),
}

/// What was behind a session's link is gone, and it has begun anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateLost {
    pub(crate) server: String,
    pub(crate) generation: Generation,
    pub(crate) delivery: Delivery,
    pub(crate) reason: Option<LossReason>,
}

impl StateLost {
    /// The server whose state it was.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Counts how often it was lost and begun anew.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether the call that was told of it can have been carried out.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        self.delivery.may_have_run()
    }

    /// Why, in one word.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.reason.map_or("expired", LossReason::as_str)
    }
}

impl fmt::Display for StateLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ran = if self.may_have_run() {
            "this call may or may not have been carried out"
        } else {
            "this call was not carried out"
        };
        write!(
            f,
            "the state of `{}` was lost ({}), and it has begun afresh; {ran}",
            self.server,
            self.reason()
        )
    }
}

impl std::error::Error for StateLost {}

impl Error {
    /// Whether the state behind the session is gone. The next call runs on a fresh one.
    #[must_use]
    pub fn is_state_lost(&self) -> bool {
        self.state_lost().is_some()
    }

    /// The loss, if this is one.
    #[must_use]
    pub fn state_lost(&self) -> Option<&StateLost> {
        match self {
            Self::StateLost(lost) => Some(lost),
            _ => None,
        }
    }

    /// The generation that began, if state was lost.
    #[must_use]
    pub fn generation(&self) -> Option<Generation> {
        self.state_lost().map(StateLost::generation)
    }

    /// Whether the call can have been carried out though there is no result.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::StateLost(lost) => lost.may_have_run(),
            Self::CallFailed { source, .. } => source.delivery().may_have_run(),
            _ => false,
        }
    }

    pub(crate) fn invalid(error: impl fmt::Display) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<stayput_core::OpenError> for Error {
    fn from(error: stayput_core::OpenError) -> Self {
        match error {
            stayput_core::OpenError::Unknown => Self::UnknownSession,
            error => Self::Session(Arc::new(error)),
        }
    }
}

impl From<stayput_core::InvalidText> for Error {
    fn from(error: stayput_core::InvalidText) -> Self {
        Self::invalid(error)
    }
}

impl From<stayput_upstream::ServerError> for Error {
    fn from(error: stayput_upstream::ServerError) -> Self {
        Self::invalid(error)
    }
}

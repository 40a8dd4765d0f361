//! What can go wrong.

use std::{fmt, sync::Arc};

use stayput_core::{Generation, SessionId};
use stayput_upstream::{CallError, Delivery};

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
    /// The configuration does not allow this tool.
    #[error("the tool `{tool}` of `{server}` is not allowed by the configuration")]
    ToolDenied {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
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
    /// The hub is of the process that this one was forked from.
    #[error(
        "this hub belongs to the process that this one was forked from; build another one here"
    )]
    Forked,
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
    /// The server wants to know something that nobody here tells it.
    #[error("`{server}` asks for input, and has no answer: {what}")]
    Unanswered {
        /// The server.
        server: String,
        /// What is missing.
        what: String,
    },
    /// The configuration cannot be used. It says which file, where in it, and what to do.
    #[error(transparent)]
    Config(Arc<stayput_config::ConfigError>),
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
    pub(crate) server: Option<String>,
    pub(crate) generation: Generation,
    pub(crate) delivery: Delivery,
    pub(crate) reason: &'static str,
}

impl StateLost {
    /// The server whose state it was; none if everything of the session is gone, on all servers.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
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

    /// Why, in one word: `exited`, `verdict`, `disconnected`, `released`, `evicted`, `restarted` or `reconfigured` of
    /// a server, `expired` or `ended` of the whole session.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

impl fmt::Display for StateLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ran = if self.may_have_run() {
            "this call may or may not have been carried out"
        } else {
            "this call was not carried out"
        };
        match &self.server {
            Some(server) => write!(f, "the state of `{server}` was lost ({})", self.reason)?,
            None => write!(f, "everything in this session was lost ({})", self.reason)?,
        }
        write!(f, ", and it has begun afresh; {ran}")
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

    /// Why state was lost, in one word, if it was. See [`StateLost::reason`].
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        self.state_lost().map(StateLost::reason)
    }

    /// What went wrong, in one word for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoSession => "no_session",
            Self::UnknownServer { .. } => "unknown_server",
            Self::Denied { .. } | Self::ToolDenied { .. } => "denied",
            Self::UnknownSession => "unknown_session",
            Self::Taken { .. } => "taken",
            Self::Ended { .. } => "ended",
            Self::Closed => "closed",
            Self::Forked => "forked",
            Self::StateLost(_) => "state_lost",
            error if error.is_at_capacity() => "at_capacity",
            Self::ServerFailed { .. } => "server_failed",
            Self::CallFailed { source: CallError::TimedOut { .. }, .. } => "timed_out",
            Self::CallFailed { .. } => "call_failed",
            Self::Refused { .. } => "refused",
            Self::Unanswered { .. } => "unanswered",
            Self::Config(_) => "config",
            Self::Session(_) => "session",
            Self::Invalid(_) => "invalid",
        }
    }

    /// Whether there are as many links, processes or sessions as there may be. Later there can be room.
    #[must_use]
    pub fn is_at_capacity(&self) -> bool {
        match self {
            Self::ServerFailed { source, .. } => {
                matches!(**source, stayput_upstream::OpenError::AtCapacity(_))
            }
            Self::Session(error) => matches!(**error, stayput_core::OpenError::AtCapacity { .. }),
            _ => false,
        }
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

impl From<stayput_config::ConfigError> for Error {
    fn from(error: stayput_config::ConfigError) -> Self {
        Self::Config(Arc::new(error))
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

//! Errors of the library.

use std::{fmt, sync::Arc, time::Duration};

use stayput_core::{Generation, SessionId};
use stayput_process::ExitStatus;
use stayput_upstream::{CallError, Delivery, Loss, LossReason};

/// Suggested delay before an attempt is repeated that failed at a limit of links, processes or sessions.
const CAPACITY_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Message about a server that cannot be used. Most causes name the server themselves.
fn server_failed(server: &str, source: &stayput_upstream::LinkOpenError) -> String {
    let cause = source.to_string();
    match cause.contains(&format!("`{server}`")) {
        true => cause,
        false => format!("`{server}` cannot be used: {cause}"),
    }
}

/// Error of a hub, a session or a call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call is in no scope, names no session, and there is no default session.
    #[error(
        "this call belongs to no session: make it inside `hub.run(…)`, on a session from \
         `hub.session(…)` or `hub.ephemeral()`, or after `hub.enable_default_session(…)`"
    )]
    NoSession,
    /// There is no server of this name.
    #[error("there is no server `{server}`; there are: {known}")]
    UnknownServer {
        /// The unknown name.
        server: String,
        /// The known names, separated by commas.
        known: String,
    },
    /// The sub-agent may not use the server.
    #[error("`{server}` is denied to this sub-agent")]
    ServerDenied {
        /// Name of the server.
        server: String,
    },
    /// The configuration does not allow this tool.
    #[error("the tool `{tool}` of `{server}` is not allowed by the configuration")]
    ToolDenied {
        /// Name of the server.
        server: String,
        /// The tool.
        tool: String,
    },
    /// There is no session of this name.
    #[error("there is no session of this name; `session` creates one")]
    UnknownSession,
    /// There already is a session of this name.
    #[error("there already is a session `{name}`; find it, or choose another name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The session was ended.
    #[error("session {session} was ended; open another one")]
    SessionEnded {
        /// Id of the session.
        session: SessionId,
    },
    /// The hub was closed.
    #[error("the hub is closed")]
    HubClosed,
    /// The hub belongs to the process that this one was forked from.
    #[error(
        "this hub belongs to the process that this one was forked from; build another one here"
    )]
    HubForked,
    /// The state behind the session was lost. See [`Error::is_state_lost`].
    #[error(transparent)]
    StateLost(StateLost),
    /// The server cannot be started or reached.
    #[error("{}", server_failed(server, source))]
    ServerFailed {
        /// Name of the server.
        server: String,
        /// Cause.
        source: Arc<stayput_upstream::LinkOpenError>,
    },
    /// The call got no answer.
    #[error("the call to `{server}` failed: {source}")]
    CallFailed {
        /// Name of the server.
        server: String,
        /// Cause.
        source: CallError,
    },
    /// The server answered with a JSON-RPC error.
    #[error("`{server}` answered with an error: {message} ({code})")]
    ProtocolError {
        /// Name of the server.
        server: String,
        /// Code of the error.
        code: i64,
        /// Message of the error.
        message: String,
        /// The whole error object, as JSON.
        raw: Box<str>,
    },
    /// The server requires input that no handler provides.
    #[error("`{server}` requires input that is not available: {reason}")]
    InputRequired {
        /// Name of the server.
        server: String,
        /// Reason why there is no input.
        reason: String,
    },
    /// The configuration is wrong. The error names the file, the place in it, and the correction.
    #[error(transparent)]
    Config(Arc<stayput_config::ConfigError>),
    /// The session cannot be opened.
    #[error(transparent)]
    SessionUnavailable(Arc<stayput_core::SessionOpenError>),
    /// Another process holds the session, and did not give it up in time.
    #[error(
        "another process has this session, and a server that runs as a child process cannot be used by two: send the \
         requests of one session to one process, or connect all processes to one gateway, see `connect`; if that process \
         was killed, its sessions are free after its lease, see `takeover_timeout`"
    )]
    SessionHeldElsewhere,
    /// The store cannot be opened.
    #[error("the store cannot be opened: {0}")]
    StoreFailed(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// A value cannot be used: an argument, a setting, or a result that does not fit the requested type.
    #[error("{0}")]
    InvalidInput(String),
    /// A value cannot be used, for a reason that has a type of its own: the JSON of a result, a server's configuration, a
    /// name, a key, a file.
    #[error("{0}")]
    InvalidValue(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

/// Loss of the state behind a session's link. The next call runs on a fresh state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateLost {
    pub(crate) server: Option<String>,
    pub(crate) generation: Generation,
    pub(crate) delivery: Delivery,
    pub(crate) reason: &'static str,
    /// Loss of the link, if it was lost in this process.
    pub(crate) link: Option<Arc<Loss>>,
}

impl StateLost {
    /// Server whose state was lost, or `None` if the state on all servers of the session was lost.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Generation that begins. It counts the losses.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether the call that returned this error may have run.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        self.delivery.may_have_run()
    }

    /// Exit status of the server's process, if the process ended by itself or was killed.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        match self.link.as_ref()?.reason() {
            LossReason::Exited(status) => Some(status),
            _ => None,
        }
    }

    /// Last lines that the server's process wrote to stderr, or the server's answer, without the configured secrets. Empty
    /// if there are none. They are not part of the message, because they are not meant for a model.
    #[must_use]
    pub fn detail(&self) -> &str {
        self.link.as_deref().map_or("", Loss::detail)
    }

    /// Reason in one word: `exited`, `session_unknown`, `disconnected`, `released`, `evicted`, `restarted` or `reconfigured`
    /// for a server, `expired` or `ended` for the whole session.
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
            Some(server) => {
                write!(f, "the state of `{server}` was lost ({}", self.reason)?;
                match (self.exit_status(), explanation(self.reason)) {
                    (Some(status), _) => write!(f, ": its process {status}")?,
                    (None, Some(text)) => write!(f, ": {text}")?,
                    (None, None) => {}
                }
                f.write_str(")")?;
            }
            None => write!(f, "everything in this session was lost ({})", self.reason)?,
        }
        write!(f, ", and the next call runs on a fresh state; {ran}")
    }
}

/// Explains a reason whose word says too little.
fn explanation(reason: &str) -> Option<&'static str> {
    match reason {
        "released" => Some("the program that had its process ended or gave the session up"),
        "evicted" => Some("it was idle, and made room for another server"),
        "session_unknown" => Some("the server does not know the session any more"),
        _ => None,
    }
}

impl std::error::Error for StateLost {}

impl Error {
    /// Whether the state behind the session was lost. The next call runs on a fresh one.
    #[must_use]
    pub fn is_state_lost(&self) -> bool {
        self.state_lost().is_some()
    }

    /// Details of the loss, if state was lost.
    #[must_use]
    pub fn state_lost(&self) -> Option<&StateLost> {
        match self {
            Self::StateLost(lost) => Some(lost),
            _ => None,
        }
    }

    /// Generation that begins, if state was lost.
    #[must_use]
    pub fn generation(&self) -> Option<Generation> {
        self.state_lost().map(StateLost::generation)
    }

    /// Reason of the loss in one word, if state was lost. See [`StateLost::reason`].
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        self.state_lost().map(StateLost::reason)
    }

    /// Kind of the error, as a stable word for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoSession => "no_session",
            Self::UnknownServer { .. } => "unknown_server",
            Self::ServerDenied { .. } | Self::ToolDenied { .. } => "denied",
            Self::UnknownSession => "unknown_session",
            Self::NameTaken { .. } => "name_taken",
            Self::SessionEnded { .. } => "session_ended",
            Self::HubClosed => "hub_closed",
            Self::HubForked => "hub_forked",
            Self::StateLost(_) => "state_lost",
            error if error.is_at_capacity() => "at_capacity",
            Self::ServerFailed { .. } => "server_failed",
            Self::CallFailed { source: CallError::TimedOut { .. }, .. } => "timed_out",
            Self::CallFailed { .. } => "call_failed",
            Self::ProtocolError { .. } => "protocol_error",
            Self::InputRequired { .. } => "input_required",
            Self::Config(_) => "config",
            Self::SessionUnavailable(_) => "session_unavailable",
            Self::SessionHeldElsewhere => "session_held_elsewhere",
            Self::StoreFailed(_) => "store_failed",
            Self::InvalidInput(_) | Self::InvalidValue(_) => "invalid_input",
        }
    }

    /// Whether the limit of links, processes or sessions is reached. A later attempt can succeed.
    #[must_use]
    pub fn is_at_capacity(&self) -> bool {
        match self {
            Self::ServerFailed { source, .. } => {
                matches!(**source, stayput_upstream::LinkOpenError::AtCapacity(_))
            }
            Self::SessionUnavailable(error) => {
                matches!(**error, stayput_core::SessionOpenError::AtCapacity { .. })
            }
            _ => false,
        }
    }

    /// Whether the call may have run though there is no result.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::StateLost(lost) => lost.may_have_run(),
            Self::CallFailed { source, .. } => source.delivery().may_have_run(),
            _ => false,
        }
    }

    /// Time after which a repeated attempt can succeed, if the error is known to pass: the server backs off after
    /// failures, or a limit is reached.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::ServerFailed { source, .. } => match **source {
                stayput_upstream::LinkOpenError::BackingOff { pause, .. } => Some(pause),
                stayput_upstream::LinkOpenError::AtCapacity(_) => Some(CAPACITY_RETRY_DELAY),
                _ => None,
            },
            error => error.is_at_capacity().then_some(CAPACITY_RETRY_DELAY),
        }
    }

    pub(crate) fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::InvalidValue(Arc::new(error))
    }

    pub(crate) fn store(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::StoreFailed(Arc::new(error))
    }
}

impl From<stayput_core::SessionOpenError> for Error {
    fn from(error: stayput_core::SessionOpenError) -> Self {
        match error {
            stayput_core::SessionOpenError::Unknown => Self::UnknownSession,
            stayput_core::SessionOpenError::HeldElsewhere { .. } => Self::SessionHeldElsewhere,
            error => Self::SessionUnavailable(Arc::new(error)),
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

impl From<stayput_upstream::TargetError> for Error {
    fn from(error: stayput_upstream::TargetError) -> Self {
        Self::invalid(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_source() {
        use std::error::Error as _;
        let json = serde_json::from_str::<u8>("x").unwrap_err();
        let error = Error::invalid(json);
        let source = error.source().unwrap();
        let source = source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>().unwrap();
        assert!(source.is::<serde_json::Error>());
        assert_eq!(error.kind(), "invalid_input");
    }

    #[test]
    fn passing_errors_say_when_to_try_again() {
        let (server, pause) = ("counter".to_owned(), Duration::from_secs(8));
        let (last, brief) = (String::new(), String::new());
        let source = stayput_upstream::LinkOpenError::BackingOff {
            server: server.clone(),
            pause,
            last,
            brief,
        };
        let failed = Error::ServerFailed { server, source: Arc::new(source) };
        assert_eq!(failed.retry_after(), Some(pause));
        assert_eq!(Error::NoSession.retry_after(), None);
    }
}

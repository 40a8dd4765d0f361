//! Errors of opening a link.

use std::{fmt, time::Duration};

use stayput_http::ClientError;
use stayput_process::{ExitStatus, StartError};

use crate::{
    AtCapacity, AttachmentStoreError, CallError, Delivery, LossReason, ServerError,
    SessionDirError, link::Core, server::redactor::hide_paths,
};

/// Reason why a link could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkOpenError {
    /// The configuration cannot be used for this session.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The private directory is not available.
    #[error(transparent)]
    Folder(#[from] SessionDirError),
    /// The process could not be started.
    #[error("the server `{server}` could not be started: {error}")]
    Start {
        /// Name of the server.
        server: String,
        /// Cause of the failure.
        error: StartError,
    },
    /// The process exited before the handshake was complete.
    #[error("the server `{server}` {exited} before it was ready{}", StderrHint(hint))]
    Exited {
        /// Name of the server.
        server: String,
        /// Exit status.
        exited: ExitStatus,
        /// End of its stderr.
        hint: String,
    },
    /// The server does not answer.
    #[error(
        "the server `{server}` did not answer `{method}` within {limit:?}; check that it is an MCP \
         server, or give it more time with `timeout`{}",
        StderrHint(hint)
    )]
    Silent {
        /// Name of the server.
        server: String,
        /// Method without an answer.
        method: String,
        /// Timeout that expired.
        limit: Duration,
        /// End of its stderr.
        hint: String,
    },
    /// The server answered with an error.
    #[error("the server `{server}` refused the connection: {message} ({code})")]
    Refused {
        /// Name of the server.
        server: String,
        /// Error code.
        code: i64,
        /// Error message.
        message: String,
    },
    /// The server supports no known protocol version.
    #[error(
        "the server `{server}` speaks {}, which this Stayput does not",
        if offered.is_empty() { "no version of the protocol" } else { offered }
    )]
    Version {
        /// Name of the server.
        server: String,
        /// Versions that it offers.
        offered: String,
    },
    /// The server violates the protocol.
    #[error("the server `{server}` cannot be spoken to: {what}")]
    Protocol {
        /// Name of the server.
        server: String,
        /// Description of the violation.
        what: String,
    },
    /// The server cannot be reached, or its answer cannot be read.
    #[error("the server `{server}` cannot be reached: {what}")]
    Http {
        /// Name of the server.
        server: String,
        /// Description of the failure.
        what: String,
        /// Whether the server itself refused the request.
        delivery: Delivery,
    },
    /// The server refused the credentials.
    #[error(
        "the server `{server}` refused the credentials (HTTP {status}); check its headers or token"
    )]
    Unauthorized {
        /// Name of the server.
        server: String,
        /// HTTP status, 401 or 403.
        status: u16,
        /// Value of `WWW-Authenticate`.
        challenge: Option<String>,
    },
    /// The settings of the HTTP client are invalid.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The budget has no permit for one more link.
    #[error(transparent)]
    AtCapacity(#[from] AtCapacity),
    /// The attachment could not be loaded or saved.
    #[error(transparent)]
    Keep(#[from] AttachmentStoreError),
    /// No more links are opened, or none for this session.
    #[error("the link to `{server}` was ended while it was opened")]
    Ended {
        /// Name of the server.
        server: String,
    },
    /// The server failed recently; the backoff still runs.
    #[error("the server `{server}` failed a moment ago and is tried again in {pause:?}: {last}")]
    BackingOff {
        /// Name of the server.
        server: String,
        /// Remaining time.
        pause: Duration,
        /// Last failure.
        last: String,
        /// Last failure for a client, see [`LinkOpenError::brief`].
        brief: String,
    },
}

/// Separator before the end of a process's stderr.
const STDERR_SEPARATOR: &str = "; it wrote:\n";

impl LinkOpenError {
    /// Message for a client: without output of the process, without local paths, and with URLs cut to their
    /// origin. The rest is for the operator, not for a model.
    #[must_use]
    pub fn brief(&self) -> String {
        let words = match self {
            Self::Start { server, error } => {
                format!("the server `{server}` could not be started: {}", error.brief())
            }
            Self::Folder(_) => "the server has no private folder".to_owned(),
            Self::Client(_) => "the server's HTTP client cannot be set up".to_owned(),
            Self::BackingOff { server, pause, brief, .. } => {
                let resting = Self::BackingOff {
                    server: server.clone(),
                    pause: *pause,
                    last: brief.clone(),
                    brief: String::new(),
                };
                resting.to_string()
            }
            other => Self::without_output(&other.to_string()).to_owned(),
        };
        hide_paths(&words).into_owned()
    }

    /// Removes the output of the process from an error message.
    #[must_use]
    pub fn without_output(words: &str) -> &str {
        words.split_once(STDERR_SEPARATOR).map_or(words, |(words, _)| words)
    }

    /// Whether the server may be the cause, so that a backoff makes sense.
    pub(crate) fn is_of_server(&self) -> bool {
        !matches!(self, Self::AtCapacity(_) | Self::Ended { .. } | Self::BackingOff { .. })
    }

    pub(crate) fn of_call(core: &Core, error: CallError) -> Self {
        Self::of_first_call(core.server.name(), error)
    }

    pub(crate) fn of_first_call(server: &str, error: CallError) -> Self {
        let server = server.to_owned();
        match error {
            CallError::Lost { loss, .. } => match loss.reason() {
                LossReason::Exited(exited) => {
                    Self::Exited { server, exited, hint: loss.detail().to_owned() }
                }
                LossReason::SessionUnknown => {
                    let what = loss.detail().to_owned();
                    Self::Http { server, what, delivery: Delivery::Refused }
                }
                LossReason::Disconnected => {
                    Self::Http { server, what: loss.to_string(), delivery: Delivery::Unknown }
                }
                _ => Self::Ended { server },
            },
            CallError::Unauthorized { status, challenge } => {
                let challenge = challenge.map(|challenge| challenge.to_string());
                Self::Unauthorized { server, status, challenge }
            }
            CallError::Failed { what, delivery } => {
                Self::Http { server, what: what.to_string(), delivery }
            }
            error => Self::Protocol { server, what: error.to_string() },
        }
    }
}

/// End of a child's stderr, if any.
struct StderrHint<'a>(&'a str);

impl fmt::Display for StderrHint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.trim_end();
        if text.is_empty() {
            return Ok(());
        }
        let from = text.len().saturating_sub(2048);
        let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        write!(f, "{STDERR_SEPARATOR}{}", &text[from..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Design 4.7: the end of a child's stderr goes to the operator, not to the model.
    #[test]
    fn brief_omits_output_of_the_process() {
        let (server, hint) = ("x".to_owned(), "password: 1\nbye\n".to_owned());
        let exited =
            LinkOpenError::Exited { server: server.clone(), exited: ExitStatus::Code(3), hint };
        let whole = exited.to_string();
        assert!(whole.contains("password"), "{whole}");
        let brief = exited.brief();
        assert!(brief.contains("before it was ready") && !brief.contains("wrote"), "{brief}");
        let resting =
            LinkOpenError::BackingOff { server, pause: Duration::ZERO, last: whole, brief };
        assert!(resting.to_string().contains("password"), "{resting}");
        let brief = resting.brief();
        assert!(brief.contains("before it was ready") && !brief.contains("password"), "{brief}");
    }
}

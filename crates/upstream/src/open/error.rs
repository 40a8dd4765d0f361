//! Errors of opening a link.

use std::{fmt, time::Duration};

use stayput_http::{ClientError, rounded};
use stayput_process::{ExitStatus, StartError};

use crate::{
    AtCapacity, AttachmentStoreError, CallError, Delivery, LossReason, ServerError,
    SessionDirError,
    link::{CLOSED_OUTPUT, Core},
    server::redactor::hide_paths,
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
        "the server `{server}` did not answer `{method}` within {:?}; {}{}",
        rounded(*limit),
        silence_hint(*not_messages),
        StderrHint(hint)
    )]
    Silent {
        /// Name of the server.
        server: String,
        /// Method without an answer.
        method: String,
        /// Timeout that expired.
        limit: Duration,
        /// Number of lines on its standard output that are no messages.
        not_messages: u64,
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
    #[error("the server `{server}` cannot be {}: {what}", if *delivery == Delivery::NotSent { "reached" } else { "used" })]
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
        "the server `{server}` refused the credentials (HTTP {status}); {}",
        credentials_hint(challenge)
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
    #[error("the server `{server}` failed a moment ago and is tried again in {} s: {last}", pause.as_secs() + 1)]
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

/// Remedy for a server that does not answer. Text among the messages tells that it is no MCP server, or that its logs
/// are in their place.
fn silence_hint(not_messages: u64) -> String {
    match not_messages {
        0 => {
            "check that it is an MCP server, or give it more time with `startup_timeout`".to_owned()
        }
        lines => format!(
            "its standard output has text that is not JSON-RPC ({lines} {} so far): check that its command starts an \
             MCP server, and that it logs to stderr",
            if lines == 1 { "line" } else { "lines" }
        ),
    }
}

/// Remedy for refused credentials. A server with OAuth metadata wants a token of an authorization server.
fn credentials_hint(challenge: &Option<String>) -> &'static str {
    match challenge.as_ref().is_some_and(|it| it.contains("resource_metadata")) {
        true => {
            "it wants OAuth, and Stayput does not log in by itself: get a token, and set it as the header \
             `Authorization` of the server"
        }
        false => "check its headers or token",
    }
}

/// Separator before the end of a process's stderr.
const STDERR_SEPARATOR: &str = "; it wrote:\n";

/// Longest line of a process's stderr in a message for a client, in characters.
const MAX_OUTPUT_LINE: usize = 300;

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

    /// Returns the name of the server, if the error is of one that does not start.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        match self {
            Self::Exited { server, .. }
            | Self::Silent { server, .. }
            | Self::BackingOff { server, .. } => Some(server),
            _ => None,
        }
    }

    /// Returns the last line that the process wrote to stderr, for a client that may see it.
    #[must_use]
    pub fn last_output_line(&self) -> Option<String> {
        let words = self.to_string();
        let (_, output) = words.split_once(STDERR_SEPARATOR)?;
        let line = output.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        Some(line.chars().take(MAX_OUTPUT_LINE).collect())
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

    fn of_exit(server: String, exited: ExitStatus, detail: &str) -> Self {
        match (detail.strip_prefix(CLOSED_OUTPUT), exited) {
            // The process runs on, but no message can come from it.
            (Some(hint), ExitStatus::Unknown) => {
                let what = format!("it closed its output before it was ready{}", StderrHint(hint));
                Self::Protocol { server, what }
            }
            (hint, exited) => {
                Self::Exited { server, exited, hint: hint.unwrap_or(detail).to_owned() }
            }
        }
    }

    pub(crate) fn of_call(core: &Core, error: CallError) -> Self {
        Self::of_first_call(core.server.name(), error)
    }

    pub(crate) fn of_first_call(server: &str, error: CallError) -> Self {
        let server = server.to_owned();
        match error {
            CallError::Lost { loss, .. } => match loss.reason() {
                LossReason::Exited(exited) => Self::of_exit(server, exited, loss.detail()),
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

    /// Times are whole seconds: a person does not need nanoseconds.
    #[test]
    fn backoff_is_told_in_whole_seconds() {
        let (server, last, brief) = ("x".to_owned(), "it exited".to_owned(), String::new());
        let pause = Duration::from_nanos(2_986_402_631);
        let resting = LinkOpenError::BackingOff { server, pause, last, brief };
        assert!(resting.to_string().contains("is tried again in 3 s: it exited"), "{resting}");
    }
}

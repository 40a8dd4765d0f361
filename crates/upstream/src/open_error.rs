//! Why a link could not be opened.

use std::{fmt, time::Duration};

use crate::{
    AtCapacity, CallError, Delivery, FolderError, KeepError, LossReason, ServerError,
    http::ClientError,
    link::Core,
    process::{Exited, StartError},
    redactor::hide_paths,
};

/// Why there is no link to a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Its configuration cannot be used for this session.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// It has no private folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Its process could not be started.
    #[error("the server `{server}` could not be started: {error}")]
    Start {
        /// Which server.
        server: String,
        /// Why not.
        error: StartError,
    },
    /// Its process ended before it said a word.
    #[error("the server `{server}` {exited} before it was ready{}", Hint(hint))]
    Exited {
        /// Which server.
        server: String,
        /// How it ended.
        exited: Exited,
        /// The last lines it wrote.
        hint: String,
    },
    /// It does not answer.
    #[error(
        "the server `{server}` did not answer `{method}` within {limit:?}; check that it is an MCP \
         server, or give it more time with `timeout`{}",
        Hint(hint)
    )]
    Silent {
        /// Which server.
        server: String,
        /// What it did not answer.
        method: String,
        /// The limit.
        limit: Duration,
        /// The last lines it wrote.
        hint: String,
    },
    /// It answered with an error.
    #[error("the server `{server}` refused the connection: {message} ({code})")]
    Refused {
        /// Which server.
        server: String,
        /// The code of the error.
        code: i64,
        /// What it said.
        message: String,
    },
    /// It speaks no version that is known here.
    #[error(
        "the server `{server}` speaks {}, which this Stayput does not",
        if offered.is_empty() { "no version of the protocol" } else { offered }
    )]
    Version {
        /// Which server.
        server: String,
        /// What it speaks.
        offered: String,
    },
    /// It does not keep to the protocol.
    #[error("the server `{server}` cannot be spoken to: {what}")]
    Protocol {
        /// Which server.
        server: String,
        /// What it did.
        what: String,
    },
    /// It cannot be reached, or its answer not be read.
    #[error("the server `{server}` cannot be reached: {what}")]
    Http {
        /// Which server.
        server: String,
        /// What went wrong.
        what: String,
        /// Whether the server itself said no.
        delivery: Delivery,
    },
    /// It wants other credentials.
    #[error(
        "the server `{server}` refused the credentials (HTTP {status}); check its headers or token"
    )]
    Unauthorized {
        /// Which server.
        server: String,
        /// 401 or 403.
        status: u16,
        /// What it said in `WWW-Authenticate`.
        challenge: Option<String>,
    },
    /// The settings of its HTTP client cannot be used.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is no room for one more link.
    #[error(transparent)]
    AtCapacity(#[from] AtCapacity),
    /// What is kept of it could not be read or written.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// Links are not opened any more, or not for this session.
    #[error("the link to `{server}` was ended while it was opened")]
    Ended {
        /// Which server.
        server: String,
    },
    /// It failed a moment ago, and is given a rest.
    #[error("the server `{server}` failed a moment ago and is tried again in {pause:?}: {last}")]
    Resting {
        /// Which server.
        server: String,
        /// For how long.
        pause: Duration,
        /// How it failed.
        last: String,
        /// The same for a client, see [`OpenError::brief`].
        brief: String,
    },
}

/// What stands before the last lines that a process wrote.
const WROTE: &str = "; it wrote:\n";

impl OpenError {
    /// The same for a client: without what its process wrote, without paths of this machine, and of a URL
    /// the origin alone. The rest is for whoever runs it, not for a model.
    #[must_use]
    pub fn brief(&self) -> String {
        let words = match self {
            Self::Start { server, error } => {
                format!("the server `{server}` could not be started: {}", error.brief())
            }
            Self::Folder(_) => "the server has no private folder".to_owned(),
            Self::Client(_) => "the server's HTTP client cannot be set up".to_owned(),
            Self::Resting { server, pause, brief, .. } => {
                let resting = Self::Resting {
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

    /// The words of an error without what a process wrote.
    #[must_use]
    pub fn without_output(words: &str) -> &str {
        words.split_once(WROTE).map_or(words, |(words, _)| words)
    }

    /// Whether it can be the server's doing, so that it is better left alone for a while.
    pub(crate) fn is_of_server(&self) -> bool {
        !matches!(self, Self::AtCapacity(_) | Self::Ended { .. } | Self::Resting { .. })
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
                LossReason::Verdict => {
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

/// The last lines of a child, if there are any.
struct Hint<'a>(&'a str);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.trim_end();
        if text.is_empty() {
            return Ok(());
        }
        let from = text.len().saturating_sub(2048);
        let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        write!(f, "{WROTE}{}", &text[from..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Design 4.7: the last lines of a child go to the operator, not to the model.
    #[test]
    fn what_a_process_wrote_can_be_left_out() {
        let (server, hint) = ("x".to_owned(), "password: 1\nbye\n".to_owned());
        let exited = OpenError::Exited { server: server.clone(), exited: Exited::Code(3), hint };
        let whole = exited.to_string();
        assert!(whole.contains("password"), "{whole}");
        let brief = exited.brief();
        assert!(brief.contains("before it was ready") && !brief.contains("wrote"), "{brief}");
        let resting = OpenError::Resting { server, pause: Duration::ZERO, last: whole, brief };
        assert!(resting.to_string().contains("password"), "{resting}");
        let brief = resting.brief();
        assert!(brief.contains("before it was ready") && !brief.contains("password"), "{brief}");
    }
}

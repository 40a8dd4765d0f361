//! What happens to sessions, for whoever runs the gateway: counted and logged.

use stayput_core::{EndReason, Generation, SessionId};
use stayput_upstream::LossReason;

use crate::reply::loss;

/// What happened to a session.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// It began, for a client of this server.
    Opened { server: &'a str },
    /// Its client came back to it; it is of an earlier process, or was let go of.
    Resumed { server: &'a str },
    /// State of it is gone, and its client is told.
    /// `detail` is what a process said last, or what a server answered.
    Lost { server: &'a str, reason: Option<LossReason>, generation: Generation, detail: &'a str },
    /// It is over. Of one that nobody came back to the server may not be known.
    Ended { server: Option<&'a str>, reason: EndReason },
}

impl Event<'_> {
    /// One word for programs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "session_opened",
            Self::Resumed { .. } => "session_resumed",
            Self::Lost { .. } => "session_lost",
            Self::Ended { .. } => "session_ended",
        }
    }

    /// Why, in one word.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Opened { .. } | Self::Resumed { .. } => None,
            Self::Lost { reason, .. } => Some(loss::word(*reason)),
            Self::Ended { reason, .. } => Some(reason.as_str()),
        }
    }

    pub(crate) fn server(&self) -> Option<&str> {
        match self {
            Self::Opened { server } | Self::Resumed { server } | Self::Lost { server, .. } => {
                Some(server)
            }
            Self::Ended { server, .. } => *server,
        }
    }

    /// A line for people.
    pub(crate) fn sentence(&self, session: SessionId) -> String {
        let on = self.server().map(|server| format!(" on {server}")).unwrap_or_default();
        match self {
            Self::Opened { .. } => format!("session {session} opened{on}"),
            Self::Resumed { .. } => format!("session {session} resumed{on}"),
            Self::Lost { reason, generation, detail, .. } => {
                let why = loss::reason(*reason);
                let said: Vec<_> =
                    detail.lines().map(str::trim).filter(|it| !it.is_empty()).collect();
                let said = match &said[..] {
                    [] => String::new(),
                    said => format!("; last words: {}", said.join(" | ")),
                };
                format!(
                    "session {session} lost its state{on}: {why} (generation {generation}){said}"
                )
            }
            Self::Ended { reason, .. } => {
                format!("session {session} ended{on}: {}", reason.as_str())
            }
        }
    }
}

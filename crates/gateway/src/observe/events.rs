//! Session events, for metrics and the log.

use stayput_core::{EndReason, Generation, SessionId};
use stayput_upstream::LossReason;

use crate::{observe::recent::recent_events::LoggedEvent, reply::loss};

/// Session event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// A session was opened, for a client of this server.
    Opened { server: &'a str },
    /// A client came back to a session of an earlier process, or to one that this process had released.
    Resumed { server: &'a str },
    /// State of a session was lost, and its client is notified. `detail` is the end of a process's stderr, or the
    /// answer of a server.
    Lost { server: &'a str, reason: Option<LossReason>, generation: Generation, detail: &'a str },
    /// A session ended. The server is unknown if no client came back to the session.
    Ended { server: Option<&'a str>, reason: EndReason },
}

impl Event<'_> {
    /// Returns the event name for log processors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "session_opened",
            Self::Resumed { .. } => "session_resumed",
            Self::Lost { .. } => "session_lost",
            Self::Ended { .. } => "session_ended",
        }
    }

    /// Returns the event as it is kept in the event log.
    pub(crate) fn logged(&self, session: SessionId) -> LoggedEvent {
        let kind = self.name().trim_start_matches("session_");
        let event = LoggedEvent::new(kind, self.reason()).in_session(session, self.server());
        match self {
            Self::Lost { generation, detail, .. } => event.with_loss(generation.0, detail),
            _ => event,
        }
    }

    /// Returns the reason as one word.
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

    /// Logs the event, as a warning if state was lost.
    pub(crate) fn log(&self, session: SessionId) {
        let (event, server, reason) = (self.name(), self.server(), self.reason());
        if let Self::Lost { generation, .. } = self {
            let sentence = self.sentence(session);
            tracing::warn!(event, %session, server, reason, %generation, "{sentence}");
        } else {
            tracing::info!(event, %session, server, reason, "{}", self.sentence(session));
        }
    }

    /// Returns the log line.
    fn sentence(&self, session: SessionId) -> String {
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

//! What happens to sessions, for whoever runs the gateway: counted and logged.

use std::sync::Arc;

use stayput_core::{EndReason, Generation, OpenError, Opened, Origin, Session, SessionId, Wish};
use stayput_upstream::LossReason;

use crate::{observe::log::Level, reply::loss, state::AppState};

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
    fn name(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "session_opened",
            Self::Resumed { .. } => "session_resumed",
            Self::Lost { .. } => "session_lost",
            Self::Ended { .. } => "session_ended",
        }
    }

    /// Why, in one word.
    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Opened { .. } | Self::Resumed { .. } => None,
            Self::Lost { reason, .. } => Some(loss::word(*reason)),
            Self::Ended { reason, .. } => Some(reason.as_str()),
        }
    }

    fn server(&self) -> Option<&str> {
        match self {
            Self::Opened { server } | Self::Resumed { server } | Self::Lost { server, .. } => {
                Some(server)
            }
            Self::Ended { server, .. } => *server,
        }
    }

    /// A line for people.
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

impl AppState {
    /// The session that is wished for, for a client of `server`. That a new one begins is noted.
    pub(crate) async fn open(&self, wish: &Wish, server: &str) -> Result<Opened, OpenError> {
        let opened = self.patiently(|| self.sessions.open(wish)).await?;
        if opened.origin == Origin::Fresh {
            self.note(opened.session.id(), Event::Opened { server });
        }
        Ok(opened)
    }

    /// Ends a session because its client is done with it.
    pub(crate) async fn end(
        &self,
        session: &Arc<Session>,
        server: Option<&str>,
    ) -> Result<(), OpenError> {
        self.sessions.end(session).await?;
        self.note(session.id(), Event::Ended { server, reason: EndReason::Closed });
        Ok(())
    }

    /// The same for one that nobody was told of: nothing of it is kept.
    pub(crate) async fn forget(
        &self,
        session: &Arc<Session>,
        server: &str,
    ) -> Result<(), OpenError> {
        self.end(session, Some(server)).await?;
        self.sessions.forget(session).await
    }

    /// Counts and logs what happened to a session.
    pub(crate) fn note(&self, session: SessionId, event: Event<'_>) {
        match event {
            Event::Opened { server } => self.metrics.opened(server),
            Event::Resumed { .. } => self.metrics.resumed(),
            Event::Lost { server, reason, .. } => self.metrics.lost(server, loss::word(reason)),
            Event::Ended { reason, .. } => self.metrics.ended(reason),
        }
        let id = session.to_string();
        let mut fields = vec![("event", event.name()), ("session", &*id)];
        fields.extend(event.server().map(|server| ("server", server)));
        fields.extend(event.reason().map(|reason| ("reason", reason)));
        let level = if matches!(event, Event::Lost { .. }) { Level::Warn } else { Level::Info };
        self.log.event(level, &event.sentence(session), &fields);
    }
}

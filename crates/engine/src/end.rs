//! Ends sessions, and deletes their sessions on servers.

use std::{sync::Arc, time::Duration};

use stayput_core::{Record, Session, SessionOpenError};
use stayput_upstream::{
    Attachment, Isolation, LinkOwner, RemoteSession, Scope, Server, UnremovedPaths,
};

use crate::Engine;

/// Time that a client waits for the end of the links of its session. After that the end goes on in the background.
pub const END_WAIT: Duration = Duration::from_secs(1);

impl Engine {
    /// Ends a session for good. Its sessions on servers are deleted before the end is stored: if this process is
    /// killed in between, the record is still there, and the next sweep ends the session and deletes them. A server that
    /// does not answer DELETE within [`END_WAIT`] is waited for in the background. `servers` finds a server by its name. The
    /// caller ends the other links with [`Links::end`](stayput_upstream::Links::end).
    ///
    /// # Errors
    /// An error of the store.
    pub async fn end_session(
        &self,
        session: &Arc<Session>,
        servers: impl Fn(&str) -> Option<Server>,
    ) -> Result<(), SessionOpenError> {
        let remote = self.remote_sessions(&session.record(), servers);
        // If another process holds the session or has ended it, its links are not ours to end; `end` says so.
        if !remote.is_empty() && self.sessions.begin_end(session).await.is_ok() {
            let mut ending = Box::pin(self.links.end_with(session.id(), remote));
            if tokio::time::timeout(END_WAIT, &mut ending).await.is_err() {
                // The store knows already that the session ends.
                let (sessions, session) = (self.sessions.clone(), session.clone());
                tokio::runtime::Handle::current().spawn(async move {
                    let _ = ending.await;
                    // If this fails, the next sweep ends it.
                    let _ = sessions.end(&session).await;
                });
                return Ok(());
            }
        }
        self.sessions.end(session).await
    }

    /// Notes in the record of a session that its processes end because this process is stopped on purpose: the next holder
    /// reports that as the reason of the loss. If this fails, it reports another one.
    ///
    /// # Errors
    /// An error of the store.
    pub async fn note_stop(&self, session: &Session) -> Result<(), SessionOpenError> {
        let stopped = |sealed: &stayput_core::Attachment| {
            let attachment =
                Attachment::open(sealed, &self.seal).ok().filter(|it| it.is_process)?;
            Attachment { is_stopped: true, ..attachment }.seal(&self.seal).ok()
        };
        let record = session.record();
        if !record.attachments.iter().any(|(_, sealed)| stopped(sealed).is_some()) {
            return Ok(());
        }
        let change = |record: &mut Record| {
            let noted: Vec<_> = record
                .attachments
                .iter()
                .filter_map(|(server, sealed)| Some((server.clone(), stopped(sealed)?)))
                .collect();
            for (server, sealed) in noted {
                record.attachments.insert(server, sealed);
            }
        };
        self.sessions.change(session, change).await
    }

    /// Ends the links of a session that expired, with this last record. Its sessions on servers are deleted, also
    /// those of an earlier process.
    pub fn end_expired<F>(
        &self,
        record: &Record,
        servers: F,
    ) -> impl Future<Output = UnremovedPaths> + use<F>
    where
        F: Fn(&str) -> Option<Server>,
    {
        self.links.end_with(record.id, self.remote_sessions(record, servers))
    }

    /// Returns the sessions on servers that end with the session of this record.
    fn remote_sessions(
        &self,
        record: &Record,
        servers: impl Fn(&str) -> Option<Server>,
    ) -> Vec<RemoteSession> {
        let link_owner = LinkOwner::new(record.owner.clone(), record.id);
        let scope = Scope::new(Isolation::PerSession, &link_owner);
        let remote = record.attachments.iter().filter_map(|(name, sealed)| {
            let attachment = Attachment::open(sealed, &self.seal).ok()?;
            Some(RemoteSession { server: servers(name)?, scope: scope.clone(), attachment })
        });
        remote.filter(RemoteSession::is_deletable).collect()
    }
}

//! Keeper of session ids: a place of the caller's own for what resumes the sessions on HTTP servers.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use stayput_core::{Record, SessionId};
use stayput_upstream::{Attachment, AttachmentSink, AttachmentStoreError, Server};

/// Keeps the session ids of HTTP servers in a place of your own, so that a later run, here or in another process, goes on
/// with them: a database of your application, a file, the state of a workflow.
///
/// It is chosen for each run ([`Hub::run_keeping`](crate::Hub::run_keeping)) or session
/// ([`Session::with_id_keeper`](crate::Session::with_id_keeper)), and gets the server with its whole configuration. The text that it
/// keeps is a secret: it gives access to the session on the server. A child process has no session id, and is not kept.
#[async_trait]
pub trait SessionIdKeeper: Send + Sync {
    /// Returns the text that was saved for this link, if there is one. Called when a link is opened.
    ///
    /// # Errors
    /// A reason without secrets. The link is then not opened, because there might be a session.
    async fn load(&self, link: &KeptLink) -> Result<Option<String>, String>;

    /// Saves the text of a link that was opened. No call is sent before this returns.
    ///
    /// # Errors
    /// A reason without secrets. The link is then not used.
    async fn save(&self, link: &KeptLink, text: &str) -> Result<(), String>;

    /// Removes the text: the server does not know the session any more, or it was ended.
    ///
    /// # Errors
    /// A reason without secrets, for the log.
    async fn clear(&self, link: &KeptLink) -> Result<(), String>;
}

/// Link whose session id is kept.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeptLink {
    /// Server, with its whole configuration.
    pub server: Server,
    /// Id of the session.
    pub session: SessionId,
    /// Name of the session, if it has one.
    pub session_name: Option<String>,
    /// Agent in whose namespace the name is; empty for the hub itself.
    pub agent: String,
}

impl KeptLink {
    pub(crate) fn new(server: &Server, record: &Record) -> Self {
        Self {
            server: server.clone(),
            session: record.id,
            session_name: record.key.as_ref().map(|key| key.value().to_owned()),
            agent: record.agent.as_str().to_owned(),
        }
    }
}

/// Sink that saves an attachment in the record and with the keeper. The keeper comes first: its text may be newer than
/// the record.
pub(crate) struct KeeperSink {
    pub(crate) keeper: Arc<dyn SessionIdKeeper>,
    pub(crate) link: KeptLink,
    pub(crate) record: Arc<dyn AttachmentSink>,
}

#[async_trait]
impl AttachmentSink for KeeperSink {
    async fn load(&self) -> Result<Option<Attachment>, AttachmentStoreError> {
        let text = self.keeper.load(&self.link).await.map_err(AttachmentStoreError::new)?;
        match text.map(|text| Attachment::from_secret_text(&text)) {
            Some(Ok(kept)) if kept.can_resume() => Ok(Some(kept)),
            // A text of another version counts as absent.
            _ => self.record.load().await,
        }
    }

    async fn save(&self, attachment: &Attachment) -> Result<(), AttachmentStoreError> {
        self.record.save(attachment).await?;
        if !attachment.can_resume() {
            return Ok(());
        }
        let saved = self.keeper.save(&self.link, &attachment.to_secret_text()).await;
        saved.map_err(AttachmentStoreError::new)
    }
}

impl fmt::Debug for KeeperSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeeperSink({} to {})", self.link.session, self.link.server.name())
    }
}

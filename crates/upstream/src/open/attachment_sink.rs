//! Storage of attachments.

use std::fmt;

use async_trait::async_trait;

use crate::Attachment;

/// Saves the attachment of one link and loads it again.
///
/// The caller that opens a link passes it, and can choose it per server and run. Without one, the attachment
/// is kept in memory while the session is open in this process. Only the link writes; others read. It is used
/// when a link is opened, never during a call.
#[async_trait]
pub trait AttachmentSink: Send + Sync + fmt::Debug {
    /// Loads the saved attachment of this link.
    ///
    /// # Errors
    /// If it cannot be read now. The link is then not opened, because another one might exist.
    async fn load(&self) -> Result<Option<Attachment>, AttachmentStoreError>;

    /// Saves the attachment. No call is sent before this returns, because every answer depends on it.
    ///
    /// # Errors
    /// If it cannot be saved. The link is then not used.
    async fn save(&self, attachment: &Attachment) -> Result<(), AttachmentStoreError>;
}

/// An attachment could not be loaded or saved.
#[derive(Clone, Debug, thiserror::Error)]
#[error("what is kept of the link cannot be read or written now: {reason}")]
pub struct AttachmentStoreError {
    reason: String,
}

impl AttachmentStoreError {
    /// Creates an error. `reason` is shown to users: it should say what to do and contain no secret.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

//! Who keeps what is needed to come back to a server.

use std::fmt;

use async_trait::async_trait;

use crate::Attachment;

/// Keeps what is needed to come back to one link: observes it when it is made, and gives it back.
///
/// Whoever opens a link names its keeper, and so can choose it by server and by kind of run; without
/// one, it is kept in memory for as long as the session lives here. Only the link writes; everybody
/// else reads. It is asked when a link is opened, never on a call.
#[async_trait]
pub trait Keeper: Send + Sync + fmt::Debug {
    /// What was kept of this link.
    ///
    /// # Errors
    /// If it cannot be read now. The link is then not opened: it could be a second one.
    async fn load(&self) -> Result<Option<Attachment>, KeepError>;

    /// Keeps it. What an answer depends on is kept before the answer leaves, so no call goes out
    /// before this returns.
    ///
    /// # Errors
    /// If it cannot be kept. The link is then not used.
    async fn save(&self, attachment: &Attachment) -> Result<(), KeepError>;
}

/// What is kept could not be read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("what is kept of the link cannot be read or written now: {reason}")]
pub struct KeepError {
    reason: String,
}

impl KeepError {
    /// `reason` is shown to people: it says what to do, and no secret.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

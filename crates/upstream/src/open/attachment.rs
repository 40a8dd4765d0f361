//! Data to resume a link from another process.

use std::fmt;

use serde::{Deserialize, Serialize};
use stayput_core::Generation;
use stayput_wire::Version;

use crate::{Identity, Link, SealError, SealKey, ServerProtocol};

/// Data to resume a link from another process.
///
/// For a session on an HTTP server it suffices to continue without a request to the server. For a child
/// process it only records that there was one: the next link has the next generation.
#[derive(Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Generation of the link.
    pub generation: Generation,
    /// Transport and era of the server.
    pub protocol: ServerProtocol,
    /// Negotiated protocol version.
    pub version: Version,
    /// Identity of configuration and credentials. The attachment is valid for no other identity.
    pub identity: Identity,
    /// Session id of the server, if it gave one. It is a secret.
    pub session: Option<String>,
    /// `initialize` result as the server wrote it. Empty for a process, which cannot be resumed.
    pub initialize_result: String,
    /// Whether the link had a child process, whose state ended with it.
    pub is_process: bool,
    /// Whether that process ended because the process that held the link was stopped on purpose.
    pub is_stopped: bool,
}

/// A stored attachment cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachmentError {
    /// The content is invalid.
    #[error("the stored data of the link to the server cannot be read; the link is opened again")]
    Unreadable,
    /// The session id cannot be decrypted, for example because the key differs.
    #[error(transparent)]
    Seal(#[from] SealError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredAttachment {
    v: u32,
    #[serde(rename = "way")]
    protocol: ServerProtocol,
    version: String,
    identity: String,
    #[serde(rename = "greeting")]
    initialize_result: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    process: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
}

impl StoredAttachment {
    /// Converts `from`, with the session id in the form in which it is stored.
    fn new(from: &Attachment, session: Option<String>) -> Self {
        Self {
            v: 1,
            protocol: from.protocol,
            version: from.version.as_str().to_owned(),
            identity: from.identity.to_hex(),
            initialize_result: from.initialize_result.clone(),
            session,
            process: from.is_process,
            stopped: from.is_stopped,
        }
    }

    /// Converts it back, with the session id in plain text.
    fn into_attachment(
        self,
        generation: Generation,
        session: Option<String>,
    ) -> Result<Attachment, AttachmentError> {
        Ok(Attachment {
            generation,
            protocol: self.protocol,
            version: Version::from(&*self.version),
            identity: identity(&self.identity).ok_or(AttachmentError::Unreadable)?,
            initialize_result: self.initialize_result,
            session,
            is_process: self.process,
            is_stopped: self.stopped,
        })
    }
}

const CONTEXT: &str = "upstream session";

impl Attachment {
    /// Builds the attachment of `link`.
    pub(crate) fn from_link(
        link: &Link,
        (generation, protocol): (Generation, ServerProtocol),
        identity: Identity,
    ) -> Self {
        let (initialize_result, is_process) = (link.initialize_result(), link.is_process());
        Self {
            generation,
            protocol,
            version: initialize_result.version().clone(),
            identity,
            initialize_result: if is_process {
                String::new()
            } else {
                initialize_result.result().to_owned()
            },
            session: link.session().map(str::to_owned),
            is_process,
            is_stopped: false,
        }
    }

    /// Converts it for the record of a session, with the session id encrypted.
    ///
    /// # Errors
    /// If it cannot be encrypted.
    pub fn seal(&self, key: &SealKey) -> Result<stayput_core::Attachment, SealError> {
        let session = self.session.as_ref();
        let session = session.map(|id| key.seal(CONTEXT, id.as_bytes())).transpose()?;
        // Cannot fail: strings and flags only.
        let body = serde_json::to_string(&StoredAttachment::new(self, session)).unwrap_or_default();
        Ok(stayput_core::Attachment::new(self.generation, body))
    }

    /// Reads the attachment of a session record.
    ///
    /// # Errors
    /// If it cannot be read. Then only the generation is usable.
    pub fn open(kept: &stayput_core::Attachment, key: &SealKey) -> Result<Self, AttachmentError> {
        let unreadable = || AttachmentError::Unreadable;
        let body: StoredAttachment = serde_json::from_str(&kept.body).map_err(|_| unreadable())?;
        let session = body.session.as_ref().map(|sealed| key.open(CONTEXT, sealed)).transpose()?;
        let session = session.map(String::from_utf8).transpose().map_err(|_| unreadable())?;
        body.into_attachment(kept.generation, session)
    }

    /// Converts it to a text with which another process resumes the link. It is a secret: it contains the session id.
    #[must_use]
    pub fn to_secret_text(&self) -> String {
        let body = StoredAttachment::new(self, self.session.clone());
        // Cannot fail: strings, numbers and flags only.
        serde_json::to_string(&(self.generation.0, body)).unwrap_or_default()
    }

    /// Reads a text of [`Attachment::to_secret_text`].
    ///
    /// # Errors
    /// If it is anything else.
    pub fn from_secret_text(text: &str) -> Result<Self, AttachmentError> {
        let (generation, mut body): (u64, StoredAttachment) =
            serde_json::from_str(text).map_err(|_| AttachmentError::Unreadable)?;
        let session = body.session.take();
        body.into_attachment(Generation(generation), session)
    }

    /// Whether its session id was encrypted with an older key.
    #[must_use]
    pub fn is_outdated(kept: &stayput_core::Attachment, key: &SealKey) -> bool {
        let body: Option<StoredAttachment> = serde_json::from_str(&kept.body).ok();
        let sealed = body.and_then(|body| body.session);
        sealed.is_some_and(|sealed| key.is_outdated(CONTEXT, &sealed))
    }

    /// Whether there is no state that could be lost.
    #[must_use]
    pub fn is_stateless(&self) -> bool {
        !self.is_process && self.protocol != ServerProtocol::Sse && self.session.is_none()
    }

    /// Whether the server-side session can be resumed.
    #[must_use]
    pub fn can_resume(&self) -> bool {
        !self.is_process && self.protocol == ServerProtocol::Legacy && self.session.is_some()
    }
}

/// Parses an identity from hexadecimal digits.
fn identity(digits: &str) -> Option<Identity> {
    let mut bytes = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(Identity::from_bytes(bytes))
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { generation, protocol, version, .. } = self;
        write!(f, "Attachment({protocol:?} {}, generation {generation})", version.as_str())
    }
}

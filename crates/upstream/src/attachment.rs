//! What is needed to come back to a server from another process.

use std::fmt;

use serde::{Deserialize, Serialize};
use stayput_core::Generation;
use stayput_wire::Version;

use crate::{Identity, Link, SealError, SealKey, Way};

/// What is needed to come back to a link from another process.
///
/// Of a session on an HTTP server this is enough to go on with it, without a word to the server. Of a
/// child process it only tells that there was one: the next one begins on the next generation.
#[derive(Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The generation of the link.
    pub generation: Generation,
    /// How the server was spoken to.
    pub way: Way,
    /// The version that was agreed on.
    pub version: Version,
    /// Which configuration, with which credentials, it was. To any other one it says nothing.
    pub identity: Identity,
    /// The id of the server's session, a secret; none if the server gave none.
    pub session: Option<String>,
    /// What the server said of itself, as it was written. Empty for a process: nobody goes on with one.
    pub greeting: String,
    /// Whether the state behind it ended with the process that had it.
    pub is_process: bool,
}

/// What is kept cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachmentError {
    /// It is not what was written.
    #[error("what is kept of the link to the server cannot be read; it will be opened anew")]
    Unreadable,
    /// The key is another one.
    #[error(transparent)]
    Seal(#[from] SealError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    v: u32,
    way: Way,
    version: String,
    identity: String,
    greeting: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    process: bool,
}

const CONTEXT: &str = "upstream session";

impl Attachment {
    /// What `link` leaves behind.
    pub(crate) fn of(
        link: &Link,
        (generation, way): (Generation, Way),
        identity: Identity,
    ) -> Self {
        let (greeting, is_process) = (link.greeting(), link.is_process());
        Self {
            generation,
            way,
            version: greeting.version().clone(),
            identity,
            greeting: if is_process { String::new() } else { greeting.result().to_owned() },
            session: link.session().map(str::to_owned),
            is_process,
        }
    }

    /// As it is kept in the record of a session, with what is secret in it sealed.
    ///
    /// # Errors
    /// If it cannot be sealed.
    pub fn seal(&self, key: &SealKey) -> Result<stayput_core::Attachment, SealError> {
        let session = self.session.as_ref();
        let session = session.map(|id| key.seal(CONTEXT, id.as_bytes())).transpose()?;
        let body = Body {
            v: 1,
            way: self.way,
            version: self.version.as_str().to_owned(),
            identity: self.identity.to_hex(),
            greeting: self.greeting.clone(),
            session,
            process: self.is_process,
        };
        // Texts and flags: there is always JSON for it.
        let body = serde_json::to_string(&body).unwrap_or_default();
        Ok(stayput_core::Attachment::new(self.generation, body))
    }

    /// What was kept in the record of a session.
    ///
    /// # Errors
    /// If it cannot be read. It is then as if there was nothing, but for the generation.
    pub fn open(kept: &stayput_core::Attachment, key: &SealKey) -> Result<Self, AttachmentError> {
        let unreadable = || AttachmentError::Unreadable;
        let body: Body = serde_json::from_str(&kept.body).map_err(|_| unreadable())?;
        let session = body.session.map(|sealed| key.open(CONTEXT, &sealed)).transpose()?;
        let session = session.map(String::from_utf8).transpose().map_err(|_| unreadable())?;
        Ok(Self {
            generation: kept.generation,
            way: body.way,
            version: Version::from(&*body.version),
            identity: identity(&body.identity).ok_or_else(unreadable)?,
            greeting: body.greeting,
            session,
            is_process: body.process,
        })
    }

    /// Whether what is secret in it was sealed by a key that another one has taken the place of.
    #[must_use]
    pub fn is_outdated(kept: &stayput_core::Attachment, key: &SealKey) -> bool {
        let body: Option<Body> = serde_json::from_str(&kept.body).ok();
        let sealed = body.and_then(|body| body.session);
        sealed.is_some_and(|sealed| key.is_outdated(CONTEXT, &sealed))
    }

    /// Whether there is nothing behind it that could get lost.
    #[must_use]
    pub fn is_stateless(&self) -> bool {
        !self.is_process && self.way != Way::Sse && self.session.is_none()
    }

    /// Whether the server's session can be gone on with.
    #[must_use]
    pub fn can_resume(&self) -> bool {
        !self.is_process && self.way == Way::Legacy && self.session.is_some()
    }
}

/// An identity out of its digits.
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
        let Self { generation, way, version, .. } = self;
        write!(f, "Attachment({way:?} {}, generation {generation})", version.as_str())
    }
}

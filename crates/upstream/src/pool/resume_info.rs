//! Resume information of a live link.

use stayput_core::Generation;

use crate::{Attachment, Identity, Link, Server, ServerProtocol};

/// Data that is needed, in addition to the link, to build its attachment.
pub(super) struct ResumeInfo {
    pub(super) generation: Generation,
    protocol: ServerProtocol,
    /// `None` if it equals the identity of the configuration, which is the usual case.
    identity: Option<Box<Identity>>,
}

impl ResumeInfo {
    pub(super) fn from_attachment(attachment: &Attachment, server: &Server) -> Self {
        let &Attachment { generation, protocol, identity, .. } = attachment;
        let own = identity != server.configuration();
        Self { generation, protocol, identity: own.then(|| Box::new(identity)) }
    }

    /// Attachment of `link`.
    pub(super) fn attachment(&self, link: &Link, server: &Server) -> Attachment {
        let identity = self.identity.as_deref().copied();
        let identity = identity.unwrap_or_else(|| server.configuration());
        Attachment::from_link(link, (self.generation, self.protocol), identity)
    }
}

//! Where a live link stands.

use stayput_core::Generation;

use crate::{Attachment, Identity, Link, Server, Way};

/// What has to be known, beside a link, to come back to it.
pub(super) struct Footing {
    pub(super) generation: Generation,
    way: Way,
    /// None if it is that of the configuration alone, as it is of most.
    identity: Option<Box<Identity>>,
}

impl Footing {
    pub(super) fn of(attachment: &Attachment, server: &Server) -> Self {
        let &Attachment { generation, way, identity, .. } = attachment;
        let own = identity != server.configuration();
        Self { generation, way, identity: own.then(|| Box::new(identity)) }
    }

    /// What `link` leaves behind.
    pub(super) fn attachment(&self, link: &Link, server: &Server) -> Attachment {
        let identity = self.identity.as_deref().copied();
        let identity = identity.unwrap_or_else(|| server.configuration());
        Attachment::of(link, (self.generation, self.way), identity)
    }
}

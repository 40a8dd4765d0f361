//! Opening of links: processes and HTTP clients, handshakes, profiles, attachments.

pub(crate) mod attachment;
pub(crate) mod attachment_sink;
pub(crate) mod error;
pub(crate) mod handshake;
pub(crate) mod opener;
pub(crate) mod profile;
pub(crate) mod seal;
pub(crate) mod started_child;

//! Hash of the properties that make two links interchangeable.

use std::fmt;

use stayput_core::{Digest, Owner};

use super::expand::{Template, TemplatePart};

/// SHA-256 over every part of a configuration by which a server could distinguish two links.
///
/// Maps use it as a key instead of commands, URLs, headers and environments, so that no map keeps a secret in
/// memory (E36).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(Digest);

impl Identity {
    /// Creates an identity from its bytes, as read from a store.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Digest::from_bytes(bytes))
    }

    /// Identity of the same server for clients with these capabilities.
    pub(crate) fn declaring(&self, capabilities: &str) -> Self {
        let pieces = [self.as_bytes().as_slice(), capabilities.as_bytes()];
        Self(Digest::compute("stayput.profile.declaring", &pieces))
    }

    /// Identity of the same server with the lists of one owner.
    pub(crate) fn seen_by(&self, owner: &Owner) -> Self {
        let pieces = [self.as_bytes().as_slice(), owner.as_str().as_bytes()];
        Self(Digest::compute("stayput.profile.owner", &pieces))
    }

    /// All 32 bytes, for a store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// All 32 bytes as hexadecimal digits, for a store or a message in text form.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.to_hex()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({}…)", self.0.short())
    }
}

/// Input of the hash. Every piece is prefixed with its length and every list with its size, so that no bytes
/// can move from one field to the next (R017).
#[derive(Default)]
pub(super) struct HashInput(Vec<Vec<u8>>);

impl HashInput {
    pub(super) fn add(&mut self, piece: impl AsRef<[u8]>) -> &mut Self {
        self.0.push(piece.as_ref().to_vec());
        self
    }

    /// Starts a list of `number` items.
    pub(super) fn list(&mut self, number: usize) -> &mut Self {
        self.add((number as u64).to_be_bytes())
    }

    /// Adds an optional piece.
    pub(super) fn maybe(&mut self, piece: Option<impl AsRef<[u8]>>) -> &mut Self {
        match piece {
            Some(piece) => self.add("some").add(piece),
            None => self.add("none"),
        }
    }

    pub(super) fn template(&mut self, template: &Template) -> &mut Self {
        self.list(template.parts().len());
        for part in template.parts() {
            match part {
                TemplatePart::Text(text) => self.add("text").add(text.as_bytes()),
                TemplatePart::Value(variable) => self.add("value").add(variable.name()),
            };
        }
        self
    }

    pub(super) fn identity(&self, label: &str) -> Identity {
        let pieces: Vec<&[u8]> = self.0.iter().map(Vec::as_slice).collect();
        Identity(Digest::compute(label, &pieces))
    }
}

//! What makes two links interchangeable, as a hash.

use std::fmt;

use stayput_core::{Digest, Owner};

use super::expand::{Part, Template};

/// A SHA-256 over everything of a configuration that a server could tell two links apart by.
///
/// Maps are keyed by it in place of commands, URLs, headers and environments, so that no map keeps a
/// secret alive (E36).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(Digest);

impl Identity {
    /// The identity with exactly these bytes, as read back from a store.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Digest::from_bytes(bytes))
    }

    /// The identity of the same for clients that declare this.
    pub(crate) fn declaring(&self, capabilities: &str) -> Self {
        let pieces = [self.as_bytes().as_slice(), capabilities.as_bytes()];
        Self(Digest::of("stayput.profile.declaring", &pieces))
    }

    /// The identity of the same as one owner has come to see it.
    pub(crate) fn seen_by(&self, owner: &Owner) -> Self {
        let pieces = [self.as_bytes().as_slice(), owner.as_str().as_bytes()];
        Self(Digest::of("stayput.profile.owner", &pieces))
    }

    /// All 32 bytes, for a store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// All 32 bytes as hexadecimal digits, for a store or a message that keeps text.
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

/// What is hashed, piece by piece. Every piece is prefixed with its length and every list with its
/// number, so nothing can be shifted from one field into the next (R017).
#[derive(Default)]
pub(super) struct Pieces(Vec<Vec<u8>>);

impl Pieces {
    pub(super) fn add(&mut self, piece: impl AsRef<[u8]>) -> &mut Self {
        self.0.push(piece.as_ref().to_vec());
        self
    }

    /// Begins a list of `number` things.
    pub(super) fn list(&mut self, number: usize) -> &mut Self {
        self.add((number as u64).to_be_bytes())
    }

    /// Something that can be missing.
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
                Part::Text(text) => self.add("text").add(text.as_bytes()),
                Part::Value(variable) => self.add("value").add(variable.name()),
            };
        }
        self
    }

    pub(super) fn identity(&self, label: &str) -> Identity {
        let pieces: Vec<&[u8]> = self.0.iter().map(Vec::as_slice).collect();
        Identity(Digest::of(label, &pieces))
    }
}

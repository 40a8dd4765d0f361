//! Hash of several strings into one fixed-size key.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// SHA-256 over labelled, length-prefixed parts.
///
/// Every map and index with a key of more than one string uses it. The length prefixes keep a
/// delimiter inside a string from making two different keys equal, and no map holds a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Hashes `parts` under `label`. Different labels never collide.
    #[must_use]
    pub fn compute(label: &str, parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in std::iter::once(label.as_bytes()).chain(parts.iter().copied()) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// Wraps 32 bytes that were read from a store.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns all 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// First 16 bytes, for the in-memory maps. A collision between two owners takes 2¹²⁸ attempts,
    /// and each map saves 16 bytes per session.
    pub(crate) fn truncate(&self) -> u128 {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.0[..16]);
        u128::from_ne_bytes(bytes)
    }

    /// Formats all 32 bytes as lower-case hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Returns the first 8 digits, enough to tell two digests apart in a log.
    #[must_use]
    pub fn short(&self) -> String {
        hex(&self.0[..4])
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({}…)", self.short())
    }
}

/// Hashes one byte string under the label `content`.
#[must_use]
pub fn content_digest(content: &[u8]) -> Digest {
    Digest::compute("content", &[content])
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_parts_and_labels_hash_differently() {
        assert_ne!(Digest::compute("x", &[b"ab", b"c"]), Digest::compute("x", &[b"a", b"bc"]));
        assert_ne!(Digest::compute("x", &[b"a"]), Digest::compute("y", &[b"a"]));
        assert_eq!(Digest::compute("x", &[b"a"]), Digest::compute("x", &[b"a"]));
    }

    #[test]
    fn hex_uses_two_digits_per_byte() {
        assert_eq!(hex(&[0x00, 0x0f, 0xa5]), "000fa5");
        assert_eq!(Digest::compute("x", &[]).to_hex().len(), 64);
        assert_eq!(Digest::compute("x", &[]).short().len(), 8);
    }
}

//! One way of turning several texts into one fixed-size name.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// A SHA-256 over labelled, length-prefixed parts.
///
/// Every map and index that is keyed by more than one text uses it, so no delimiter inside a text
/// can make two different names equal, and no map holds a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `parts` under `label`; different labels never collide.
    #[must_use]
    pub fn of(label: &str, parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in std::iter::once(label.as_bytes()).chain(parts.iter().copied()) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The digest with exactly these bytes, as read back from a store.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// All 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Half of it, for the maps of this process: to make two names of one owner and another meet, 2¹²⁸
    /// would have to be tried, and each of 100,000 sessions is spared sixteen bytes a map.
    pub(crate) fn half(&self) -> u128 {
        let mut half = [0; 16];
        half.copy_from_slice(&self.0[..16]);
        u128::from_ne_bytes(half)
    }

    /// All 32 bytes as lower-case hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// The first 8 digits: enough to tell two apart in a log.
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

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_labels_are_kept_apart() {
        assert_ne!(Digest::of("x", &[b"ab", b"c"]), Digest::of("x", &[b"a", b"bc"]));
        assert_ne!(Digest::of("x", &[b"a"]), Digest::of("y", &[b"a"]));
        assert_eq!(Digest::of("x", &[b"a"]), Digest::of("x", &[b"a"]));
    }

    #[test]
    fn hexadecimal_digits_are_two_a_byte() {
        assert_eq!(hex(&[0x00, 0x0f, 0xa5]), "000fa5");
        assert_eq!(Digest::of("x", &[]).to_hex().len(), 64);
        assert_eq!(Digest::of("x", &[]).short().len(), 8);
    }
}

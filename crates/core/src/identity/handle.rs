//! Secret handle that lets a client address a session.

use std::{fmt, str::FromStr};

use subtle::ConstantTimeEq;

use crate::{Digest, InvalidText, Owner, identity::random};

/// Secret name of a session: `sp_` and 160 random bits.
///
/// A caller needs the handle *and* must be the session's owner; the handle alone is not enough.
/// There is no `Display`, and `Debug` shows only the first characters, so that a handle does not
/// get into a log by accident. [`Handle::expose`] returns the whole text.
///
/// ```
/// use stayput_core::Handle;
///
/// let handle = Handle::generate();
/// let text = handle.expose().to_owned();
/// assert!(text.starts_with("sp_"));
/// assert!(!format!("{handle:?}").contains(&text));
/// assert!(text.parse::<Handle>().is_ok());
/// ```
#[derive(Clone)]
pub struct Handle([u8; Handle::LENGTH]);

/// Alphabet of RFC 4648 base32 in lower case. No two letters look alike, and a model copies them
/// well.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const RANDOM_BYTES: usize = 20;

impl Handle {
    /// Prefix of every handle.
    pub const PREFIX: &'static str = "sp_";

    /// Length of every handle in bytes.
    pub const LENGTH: usize = Self::PREFIX.len() + RANDOM_BYTES * 8 / 5;

    /// Generates a new handle.
    #[must_use]
    pub fn generate() -> Self {
        let mut text = [0; Self::LENGTH];
        let (prefix, letters) = text.split_at_mut(Self::PREFIX.len());
        prefix.copy_from_slice(Self::PREFIX.as_bytes());
        let random = random::bytes::<RANDOM_BYTES>();
        for (group, letters) in random.chunks_exact(5).zip(letters.chunks_exact_mut(8)) {
            let mut bits = group.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
            for letter in letters.iter_mut().rev() {
                *letter = LETTERS[usize::try_from(bits & 31).unwrap_or_default()];
                bits >>= 5;
            }
        }
        Self(text)
    }

    /// Returns the whole secret. Give it to the owner only.
    #[must_use]
    pub fn expose(&self) -> &str {
        // A handle is always ASCII.
        str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Hashes the handle together with its owner, for a store.
    #[must_use]
    pub fn hash(&self, owner: &Owner) -> HandleHash {
        HandleHash(Digest::compute("handle", &[owner.as_str().as_bytes(), &self.0]))
    }
}

impl FromStr for Handle {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let letters = text.strip_prefix(Self::PREFIX);
        // Same set as LETTERS. Every request brings a handle, and a pattern is faster than a search
        // in LETTERS.
        let exact = |letters: &str| {
            letters.bytes().all(|letter| matches!(letter, b'a'..=b'z' | b'2'..=b'7'))
        };
        let form = || InvalidText::form("a handle", "'sp_' and 32 letters a-z, 2-7");
        letters.filter(|letters| exact(letters)).ok_or_else(form)?;
        text.as_bytes().try_into().map(Self).map_err(|_| form())
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({}…)", &self.expose()[..Self::PREFIX.len() + 4])
    }
}

/// Hash over an owner and a handle, as a store keeps it.
///
/// The owner is part of the hash, so that another owner's request looks for a different hash. A
/// foreign handle and an unknown one take the same path, in the same time, to the same answer.
#[derive(Clone, Copy, Eq)]
pub struct HandleHash(Digest);

impl HandleHash {
    /// Wraps 32 bytes that were read from a store.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Digest::from_bytes(bytes))
    }

    /// Returns all 32 bytes, for a store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// Formats all 32 bytes as hexadecimal digits, for a store that keeps text.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.to_hex()
    }
}

impl PartialEq for HandleHash {
    /// Compares in constant time.
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl std::hash::Hash for HandleHash {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Debug for HandleHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandleHash({}…)", self.0.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E31: at least 128 bits of randomness from the operating system.
    #[test]
    fn generated_handles_are_random_and_parse_back() {
        let one = Handle::generate();
        assert_eq!(one.expose().len(), Handle::LENGTH);
        assert_eq!(RANDOM_BYTES * 8, 160);
        assert_ne!(one.expose(), Handle::generate().expose());
        assert_eq!(one.expose().parse::<Handle>().unwrap().expose(), one.expose());
    }

    #[test]
    fn generated_handles_use_every_letter_at_every_position() {
        let letters = |handle: &Handle| handle.expose()[3..].bytes().collect::<Vec<_>>();
        let mut seen = vec![std::collections::BTreeSet::new(); 32];
        for _ in 0..2_000 {
            for (place, letter) in letters(&Handle::generate()).into_iter().enumerate() {
                seen[place].insert(letter);
            }
        }
        assert!(
            seen.iter().all(|letters| letters.len() == 32),
            "a position does not take all letters"
        );
    }

    /// Invariant 8: the whole handle never appears in `Debug` output.
    #[test]
    fn debug_output_hides_the_handle() {
        let handle = Handle::generate();
        let shown = format!("{handle:?} {:?}", handle.hash(&Owner::local()));
        assert!(!shown.contains(handle.expose()));
        assert!(!shown.contains(&handle.expose()[8..]));
    }

    #[test]
    fn malformed_handle_is_refused() {
        let good = Handle::generate().expose().to_owned();
        for bad in [
            String::new(),
            good[1..].to_owned(),
            format!("{good}a"),
            good.to_uppercase(),
            good.replace("sp_", "sq_"),
            format!("{}!", &good[..good.len() - 1]),
            format!("sp_{}", "ä".repeat(16)),
        ] {
            assert!(bad.parse::<Handle>().is_err(), "{bad}");
        }
    }

    /// E30, E31: the owner is part of the lookup key.
    #[test]
    fn hash_depends_on_the_owner() {
        let handle = Handle::generate();
        let (ann, bob) =
            (Owner::verified("i", "ann").unwrap(), Owner::verified("i", "bob").unwrap());
        assert_eq!(handle.hash(&ann), handle.hash(&ann));
        assert_ne!(handle.hash(&ann), handle.hash(&bob));
    }
}

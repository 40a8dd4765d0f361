//! Hashing of what was made here.

use std::hash::{BuildHasherDefault, Hasher};

/// Hashes what nobody else chose, at a fraction of the price: ids and digests that are as good as random. Names that
/// clients choose are not for it, or somebody could choose many that meet.
///
/// ```
/// use std::collections::HashMap;
/// use stayput_core::{BuildQuick, SessionId, Timestamp};
///
/// let id = SessionId::generate(Timestamp::from_millis(7));
/// let mut held: HashMap<SessionId, u32, BuildQuick> = HashMap::default();
/// held.insert(id, 1);
/// assert_eq!(held.get(&id), Some(&1));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Quick(u64);

/// Makes a [`Quick`] for a map.
pub type BuildQuick = BuildHasherDefault<Quick>;

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        // What was multiplied is best in its upper bits, and maps look at the lower ones first.
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let last = rest.iter().fold(0, |last, byte| last << 8 | u64::from(*byte));
            self.write_u64(last);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = self.0.wrapping_add(word).wrapping_mul(0xf135_7aea_2e62_a9c5);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, hash::BuildHasher as _};

    use super::*;
    use crate::{SessionId, Timestamp};

    /// Ids of one moment differ in their random part only, and still fill a table evenly.
    #[test]
    fn ids_of_one_moment_do_not_meet() {
        let hash = |_| {
            let id = SessionId::generate(Timestamp::from_millis(1_700_000_000_000));
            BuildQuick::default().hash_one(id)
        };
        let hashes: Vec<u64> = (0..4_096).map(hash).collect();
        let all: BTreeSet<_> = hashes.iter().collect();
        assert_eq!(all.len(), hashes.len());
        // Of 4096 that fall into 4096 boxes, 37 % are left empty; and the uppermost bits tell those apart that meet.
        let boxes: BTreeSet<_> = hashes.iter().map(|hash| hash % 4_096).collect();
        assert!(boxes.len() > 2_300, "{} boxes", boxes.len());
        let tops: BTreeSet<_> = hashes.iter().map(|hash| hash >> 57).collect();
        assert_eq!(tops.len(), 128);
    }

    #[test]
    fn every_byte_counts() {
        let hash = |text: &str| BuildQuick::default().hash_one(text);
        for (one, other) in [("http://a:1", "http://a:2"), ("12345678", "1234567"), ("ab", "ba")] {
            assert_ne!(hash(one), hash(other));
        }
    }
}

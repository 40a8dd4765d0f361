//! Ids of the requests that are sent to servers.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Bits of each half of an id. Ids are below 2^48, so that a server written in JavaScript returns them unchanged.
const HALF_BITS: u32 = 24;

/// Mask of the lower half.
const MASK: u64 = (1 << HALF_BITS) - 1;

/// Rounds of the Feistel network.
const ROUNDS: u64 = 4;

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Keys of the permutation, drawn once per process.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Returns the id of the next request, unique in this process.
///
/// An answer that reaches the wrong call, on this link or another one, is recognised by its id. Its sender
/// may have seen other ids, so the next one must not be predictable: a counter is permuted by a Feistel
/// network with keys that only this process knows.
pub(super) fn next() -> u64 {
    permute(NEXT_NUMBER.fetch_add(1, Ordering::Relaxed), &KEYS)
}

fn permute(counted: u64, keys: &RandomState) -> u64 {
    let (mut left, mut right) = ((counted >> HALF_BITS) & MASK, counted & MASK);
    for round in 0..ROUNDS {
        let hashed = keys.hash_one((round << HALF_BITS) | right);
        (left, right) = (right, left ^ (hashed & MASK));
    }
    (left << HALF_BITS) | right
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_safe_for_javascript() {
        let keys = RandomState::new();
        let edges = [0, MASK - 500, (1 << 47) - 500, (1 << 48) - 1000];
        let counted: HashSet<u64> = edges.iter().flat_map(|from| *from..*from + 1000).collect();
        let numbers: HashSet<u64> = counted.iter().map(|it| permute(*it, &keys)).collect();
        assert_eq!(numbers.len(), counted.len());
        assert!(numbers.iter().all(|number| *number < 1 << 48));
    }

    #[test]
    fn next_id_is_not_predictable() {
        let steps: HashSet<u64> = (0..100).map(|_| next().wrapping_sub(next())).collect();
        assert!(steps.len() > 90, "{steps:?}");
    }
}

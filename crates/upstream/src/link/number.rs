//! The numbers under which requests go to servers.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// How many bits each half of a number has. A number is below 2^48, so a server that keeps numbers as
/// JavaScript does gives it back unchanged.
const HALF: u32 = 24;

/// The lower half.
const MASK: u64 = (1 << HALF) - 1;

/// How often the halves are mixed.
const ROUNDS: u8 = 4;

static COUNTED: AtomicU64 = AtomicU64::new(0);

/// The keys that numbers are mixed with, drawn once for each process.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Gives the number of the next request, one that no other request of this process has.
///
/// An answer that reaches the wrong call, on the same link or on another one, is recognised by its
/// number. Whoever put it there may have seen other numbers, so the next one must not follow from them:
/// what is counted is permuted by a Feistel network with keys that only this process knows.
pub(super) fn next() -> u64 {
    permute(COUNTED.fetch_add(1, Ordering::Relaxed), &KEYS)
}

fn permute(counted: u64, keys: &RandomState) -> u64 {
    let (mut left, mut right) = ((counted >> HALF) & MASK, counted & MASK);
    for round in 0..ROUNDS {
        (left, right) = (right, left ^ (keys.hash_one((round, right)) & MASK));
    }
    (left << HALF) | right
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_number_is_given_out_twice_or_is_too_large_for_javascript() {
        let keys = RandomState::new();
        let edges = [0, MASK - 500, (1 << 47) - 500, (1 << 48) - 1000];
        let counted: HashSet<u64> = edges.iter().flat_map(|from| *from..*from + 1000).collect();
        let numbers: HashSet<u64> = counted.iter().map(|it| permute(*it, &keys)).collect();
        assert_eq!(numbers.len(), counted.len());
        assert!(numbers.iter().all(|number| *number < 1 << 48));
    }

    #[test]
    fn a_number_does_not_tell_the_next() {
        let steps: HashSet<u64> = (0..100).map(|_| next().wrapping_sub(next())).collect();
        assert!(steps.len() > 90, "{steps:?}");
    }
}

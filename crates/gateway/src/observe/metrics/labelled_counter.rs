//! Counts things by one of a few words.

use std::sync::atomic::{AtomicU64, Ordering};

/// One counter for each word. Which words there are is fixed, so nothing that comes from outside makes
/// it grow.
#[derive(Debug)]
pub(super) struct Tally {
    words: &'static [&'static str],
    counts: Box<[AtomicU64]>,
}

impl Tally {
    pub(super) fn new(words: &'static [&'static str]) -> Self {
        Self { words, counts: words.iter().map(|_| AtomicU64::default()).collect() }
    }

    /// Counts one. What has no word of its own falls under the last one.
    pub(super) fn add(&self, word: &str) {
        let found = self.words.iter().zip(&self.counts).find(|(known, _)| **known == word);
        if let Some(count) = found.map(|(_, count)| count).or(self.counts.last()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All words, also those that were never counted: a rate needs a beginning.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        self.words.iter().copied().zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_not_known_is_the_last_one() {
        let tally = Tally::new(&["a", "b", "other"]);
        ["b", "b", "x"].iter().for_each(|word| tally.add(word));
        assert_eq!(tally.counts().collect::<Vec<_>>(), [("a", 0), ("b", 2), ("other", 1)]);
    }
}

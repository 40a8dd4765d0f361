//! Counter with one label.

use std::sync::atomic::{AtomicU64, Ordering};

/// One counter for each label value. The values are fixed, so no input can make it grow.
#[derive(Debug)]
pub(crate) struct LabelledCounter {
    words: &'static [&'static str],
    counts: Box<[AtomicU64]>,
}

impl LabelledCounter {
    pub(crate) fn new(words: &'static [&'static str]) -> Self {
        Self { words, counts: words.iter().map(|_| AtomicU64::default()).collect() }
    }

    /// Counts one. An unknown value counts as the last one.
    pub(crate) fn add(&self, word: &str) {
        let found = self.words.iter().zip(&self.counts).find(|(known, _)| **known == word);
        if let Some(count) = found.map(|(_, count)| count).or(self.counts.last()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns all values, also those with a count of zero, because a rate needs a first sample.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        self.words.iter().copied().zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_value_counts_as_the_last_one() {
        let tally = LabelledCounter::new(&["a", "b", "other"]);
        ["b", "b", "x"].iter().for_each(|word| tally.add(word));
        assert_eq!(tally.counts().collect::<Vec<_>>(), [("a", 0), ("b", 2), ("other", 1)]);
    }
}

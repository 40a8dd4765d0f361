//! Reproducible random numbers.

use std::time::SystemTime;

/// Pseudo-random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Uses `STAYPUT_TEST_SEED`, or else the clock. Prints the seed, so that a failed test can be repeated.
    #[must_use]
    #[allow(clippy::print_stdout, reason = "it is for whoever reads what a failed test said")]
    pub fn for_test() -> Self {
        let said = std::env::var("STAYPUT_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let seed = said.unwrap_or(u64::from(now.subsec_nanos()));
        println!("STAYPUT_TEST_SEED={seed}");
        Self(seed)
    }

    /// Creates a generator from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number of the full range.
    pub fn number(&mut self) -> u64 {
        // SplitMix64: a counter with mixed bits.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap();
        usize::try_from(self.number() % end).unwrap()
    }

    /// Returns true with this percentage.
    pub fn percent(&mut self, often: usize) -> bool {
        self.below(100) < often
    }

    /// Returns one of these.
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

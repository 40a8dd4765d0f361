//! Chance that can be had again.

use std::time::SystemTime;

/// Numbers that look random and follow from a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// What `STAYPUT_TEST_SEED` says, or else the clock. The seed is printed, so that a test that failed can
    /// be run again as it was.
    #[must_use]
    #[allow(clippy::print_stdout, reason = "it is for whoever reads what a failed test said")]
    pub fn for_test() -> Self {
        let said = std::env::var("STAYPUT_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let seed = said.unwrap_or(u64::from(now.subsec_nanos()));
        println!("STAYPUT_TEST_SEED={seed}");
        Self(seed)
    }

    /// Numbers that follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, of all there are.
    pub fn number(&mut self) -> u64 {
        // SplitMix64: a counter, and its bits well stirred.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap();
        usize::try_from(self.number() % end).unwrap()
    }

    /// Yes, this often in a hundred.
    pub fn percent(&mut self, often: usize) -> bool {
        self.below(100) < often
    }

    /// One of these.
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

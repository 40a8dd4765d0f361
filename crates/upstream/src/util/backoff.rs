//! Exponential backoff with jitter.

use std::time::Duration;

/// Pauses between attempts: each twice as long as the one before, up to a limit. Jitter spreads attempts that
/// failed at the same time.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    limit: Duration,
    attempts: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, limit: Duration) -> Self {
        Self { first, limit, attempts: 0 }
    }

    /// Resets the pause after a success.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }

    /// Returns the next pause: between half of the step and the whole step.
    pub(crate) fn next(&mut self) -> Duration {
        let factor = 2_u32.saturating_pow(self.attempts.min(20));
        self.attempts = self.attempts.saturating_add(1);
        let step = self.first.saturating_mul(factor).min(self.limit);
        let mut byte = [0];
        // Without random bytes the pause is valid, but not spread.
        let _ = getrandom::fill(&mut byte);
        step / 2 + step / 2 * u32::from(byte[0]) / 255
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_limit() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let pauses: Vec<_> = (0..40).map(|_| backoff.next()).collect();
        assert!(pauses[0] >= Duration::from_millis(50) && pauses[0] <= Duration::from_millis(100));
        assert!(pauses[3] >= Duration::from_millis(400));
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(1)));
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(100));
    }
}

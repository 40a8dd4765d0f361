//! Refusal of requests that were received before.

use std::collections::HashMap;

use stayput_sync::Mutex;
use tokio::time::Instant;

use super::signature::MAX_AGE;

/// Number of recent requests of one sender that are told apart. Requests that overtake each other by more are refused.
const WINDOW: u64 = 1 << 16;

/// Largest number of senders. Each start of a replica is a new one.
const MAX_SENDERS: usize = 256;

/// Numbers of the requests that were accepted, per sender: an anti-replay window as in RFC 4303. Its memory is bounded by
/// the number of senders, not by the number of requests.
#[derive(Default)]
pub(super) struct ReplayGuard(Mutex<HashMap<u64, Window>>);

impl ReplayGuard {
    /// Returns whether this number of a sender was not accepted before, and records it.
    pub(super) fn accept(&self, sender: u64, number: u64) -> bool {
        let mut senders = self.0.lock();
        if !senders.contains_key(&sender) && senders.len() >= MAX_SENDERS {
            // All requests of a sender that was silent for this long are refused for their age.
            senders.retain(|_, window| window.last.elapsed() < 2 * MAX_AGE);
            if senders.len() >= MAX_SENDERS {
                return false;
            }
        }
        senders.entry(sender).or_insert_with(Window::new).accept(number)
    }
}

/// Numbers of one sender.
struct Window {
    /// Highest number so far.
    top: u64,
    /// One bit for each of the last [`WINDOW`] numbers, at the number modulo the window.
    seen: Box<[u64]>,
    last: Instant,
}

impl Window {
    fn new() -> Self {
        Self { top: 0, seen: vec![0; (WINDOW / 64) as usize].into(), last: Instant::now() }
    }

    fn accept(&mut self, number: u64) -> bool {
        if number == 0 || number.saturating_add(WINDOW) <= self.top {
            return false;
        }
        if number > self.top {
            let skipped = (number - self.top).min(WINDOW);
            for step in 0..skipped {
                self.set(number - step, false);
            }
            self.top = number;
        }
        let is_new = !self.is_set(number);
        if is_new {
            self.set(number, true);
            self.last = Instant::now();
        }
        is_new
    }

    fn is_set(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.seen.get(word).is_some_and(|word| word & bit != 0)
    }

    fn set(&mut self, number: u64, is_set: bool) {
        let (word, bit) = place(number);
        if let Some(word) = self.seen.get_mut(word) {
            *word = if is_set { *word | bit } else { *word & !bit };
        }
    }
}

/// Returns the word and the bit of a number.
fn place(number: u64) -> (usize, u64) {
    let at = number % WINDOW;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_accepted_once_in_any_order() {
        let guard = ReplayGuard::default();
        for number in [3, 1, 2, 70_000, 69_999, 140_000] {
            assert!(guard.accept(7, number), "{number}");
            assert!(!guard.accept(7, number), "{number} again");
        }
        assert!(!guard.accept(7, 3), "below the window");
        assert!(guard.accept(8, 3), "another sender");
        assert!(!guard.accept(9, 0));
    }

    #[test]
    fn senders_are_bounded() {
        let guard = ReplayGuard::default();
        for sender in 0..MAX_SENDERS as u64 {
            assert!(guard.accept(sender, 1));
        }
        assert!(!guard.accept(u64::MAX, 1));
        assert!(guard.accept(0, 2));
    }
}

//! Waits for conditions that nothing reports.

use std::time::{Duration, Instant};

use tokio::time::sleep;

/// Time after which a wait has failed, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

const INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `holds` returns true. Panics with `what` after a minute.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "waited in vain: {what}");
        sleep(INTERVAL).await;
    }
}

/// Waits until `look` returns a value, and returns it.
pub async fn until_some<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "waited in vain: {what}");
        sleep(INTERVAL).await;
    }
}

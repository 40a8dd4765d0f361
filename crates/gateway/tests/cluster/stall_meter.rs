//! Time for which this machine had no processor for a thread that wanted one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::time::Instant;

/// Interval at which the thread wants to run.
const INTERVAL: Duration = Duration::from_millis(10);

/// Thread that sleeps, and adds up how much later than asked it runs again. A limit on a time is prolonged by it, so that a
/// busy machine does not fail a test, and a quiet one does not hide a slow gateway.
pub(crate) struct StallMeter {
    micros: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StallMeter {
    pub(crate) fn start() -> Self {
        let (micros, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (sum, stopped) = (micros.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let start = Instant::now();
                std::thread::sleep(INTERVAL);
                let late = start.elapsed().saturating_sub(INTERVAL);
                sum.fetch_add(u64::try_from(late.as_micros()).unwrap(), Ordering::Relaxed);
            }
        });
        Self { micros, stop, thread: Some(thread) }
    }

    /// Returns the time since the start for which the thread had to wait.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}

impl Drop for StallMeter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

//! Time for which this machine had no processor for a thread that wanted one.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::time::Instant;

/// Interval at which the thread wants to run.
const INTERVAL: Duration = Duration::from_millis(10);

/// Thread that sleeps, and notes how much later than asked it runs again. A limit on a time is prolonged by what it notes
/// within that time, so that a busy machine does not fail a test, and a quiet one does not hide a slow gateway.
pub(crate) struct StallMeter {
    /// Ends of the sleeps, each with its delay.
    delays: Arc<Mutex<Vec<(Instant, Duration)>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StallMeter {
    pub(crate) fn start() -> Self {
        let (delays, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (noted, stopped) = (delays.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let start = Instant::now();
                std::thread::sleep(INTERVAL);
                let delay = start.elapsed().saturating_sub(INTERVAL);
                noted.lock().unwrap().push((Instant::now(), delay));
            }
        });
        Self { delays, stop, thread: Some(thread) }
    }

    /// Returns how long the thread had to wait in this time.
    pub(crate) fn waited_in(&self, (start, end): (Instant, Instant)) -> Duration {
        let delays = self.delays.lock().unwrap();
        delays.iter().filter(|(at, _)| (start..=end).contains(at)).map(|(_, delay)| *delay).sum()
    }
}

impl Drop for StallMeter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

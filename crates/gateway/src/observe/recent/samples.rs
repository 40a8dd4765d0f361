//! Numbers of the whole gateway over the last 15 minutes. They are sampled only while a page is open.

use std::{
    collections::VecDeque,
    mem::size_of,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde::Serialize;
use stayput_sync::Mutex;
use tokio::{sync::watch, task::AbortHandle};

/// Time between two samples.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// Number of samples in 15 minutes.
const KEPT: usize = 15 * 60 / 5;

/// Most memory of the samples. A ring grows to a power of two.
pub(super) const MAX_BYTES: usize = KEPT.next_power_of_two() * size_of::<Sample>();

/// Numbers of one moment.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Sample {
    /// Milliseconds since 1970.
    pub(crate) at: u64,
    pub(crate) sessions: usize,
    /// Calls per 1000 seconds since the sample before.
    pub(crate) millicalls_per_second: u64,
    /// Median and 99th percentile of the duration of those calls, in microseconds.
    pub(crate) p50_micros: Option<u64>,
    pub(crate) p99_micros: Option<u64>,
    /// Losses of state since the sample before.
    pub(crate) losses: u64,
    pub(crate) processes: usize,
    /// Memory of all processes, as of the last time that it was measured.
    pub(crate) memory_bytes: u64,
}

/// Ring of samples, and the pages for which they are taken.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    buffer: Mutex<SampleBuffer>,
    /// Number of sampling tasks that run.
    tasks: AtomicUsize,
    feed: watch::Sender<Option<Sample>>,
}

#[derive(Debug, Default)]
struct SampleBuffer {
    samples: VecDeque<Sample>,
    pages: usize,
    task: Option<AbortHandle>,
}

/// Open page. While there is one, samples are taken.
#[derive(Debug)]
pub(crate) struct OpenPage(Arc<Samples>);

/// Running sampling task, for the count of them.
#[derive(Debug)]
pub(crate) struct SamplingTask(Arc<Samples>);

impl Samples {
    /// Registers an open page. The first one starts the sampling task by `start`; the last one ends it.
    pub(crate) fn open_page(
        self: &Arc<Self>,
        start: impl FnOnce(SamplingTask) -> AbortHandle,
    ) -> OpenPage {
        let mut buffer = self.lock();
        buffer.pages += 1;
        if buffer.task.is_none() {
            self.tasks.fetch_add(1, Ordering::Relaxed);
            buffer.task = Some(start(SamplingTask(self.clone())));
        }
        OpenPage(self.clone())
    }

    /// Adds a sample. The oldest makes room.
    pub(crate) fn add(&self, sample: Sample) {
        let mut buffer = self.lock();
        if buffer.samples.len() == KEPT {
            buffer.samples.pop_front();
        }
        buffer.samples.push_back(sample);
        drop(buffer);
        self.feed.send_replace(Some(sample));
    }

    /// Returns the feed of samples: the last one, and those that follow it.
    pub(crate) fn follow(&self) -> watch::Receiver<Option<Sample>> {
        self.feed.subscribe()
    }

    /// Returns the samples that are not before this moment, in milliseconds since 1970.
    pub(crate) fn since(&self, from: u64) -> Vec<Sample> {
        self.lock().samples.iter().filter(|sample| sample.at >= from).copied().collect()
    }

    /// Returns the number of open pages, and the number of sampling tasks.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.lock().pages, self.tasks.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, SampleBuffer> {
        self.buffer.lock()
    }
}

impl Drop for OpenPage {
    fn drop(&mut self) {
        let mut buffer = self.0.lock();
        buffer.pages -= 1;
        if buffer.pages == 0
            && let Some(task) = buffer.task.take()
        {
            task.abort();
        }
    }
}

impl Drop for SamplingTask {
    fn drop(&mut self) {
        self.0.tasks.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn task_lives_as_long_as_a_page_is_open() {
        let samples = Arc::new(Samples::default());
        let start = |task: SamplingTask| {
            let sampling = tokio::runtime::Handle::current().spawn(async move {
                let _task = task;
                std::future::pending::<()>().await;
            });
            sampling.abort_handle()
        };
        let (one, other) = (samples.open_page(start), samples.open_page(start));
        assert_eq!(samples.counts(), (2, 1));
        drop(one);
        assert_eq!(samples.counts(), (1, 1));
        drop(other);
        while samples.counts() != (0, 0) {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn samples_cover_fifteen_minutes() {
        let samples = Samples::default();
        for at in 0..1_000 {
            samples.add(Sample { at: at * 5_000, ..Sample::default() });
        }
        let kept = samples.since(0);
        assert_eq!((kept.len(), kept[0].at), (180, 820 * 5_000));
        assert_eq!(samples.since(999 * 5_000).len(), 1);
    }
}

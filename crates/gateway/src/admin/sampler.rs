//! Sampling task of the dashboard. It exists while a page is open.

use std::{sync::Arc, time::Duration};

use stayput_core::{Clock as _, SystemClock};
use tokio::{
    runtime::Handle,
    time::{Instant, MissedTickBehavior},
};

use crate::{
    observe::{
        metrics::{BucketCounts, quantile},
        recent::samples::{INTERVAL, OpenPage, Sample, SamplingTask},
    },
    state::AppState,
};

/// Shortest time between two measurements of memory.
const MEMORY_INTERVAL: Duration = Duration::from_secs(15);

/// Memory is measured again after this many times the time that it took, so that it takes at most a fiftieth of one
/// core.
const MEMORY_REST: u32 = 50;

/// Registers an open page.
pub(super) fn open_page(app: &Arc<AppState>) -> OpenPage {
    let sampled = app.clone();
    app.recent
        .samples
        .open_page(move |task| Handle::current().spawn(run(sampled, task)).abort_handle())
}

async fn run(app: Arc<AppState>, _task: SamplingTask) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sampler = Sampler::new(&app.now());
    loop {
        ticks.tick().await;
        let app = app.now();
        sampler.measure_memory(&app).await;
        app.recent.samples.add(sampler.sample(&app));
    }
}

/// Counters at the last sample.
struct Sampler {
    calls: BucketCounts,
    losses: u64,
    at: Instant,
    memory_bytes: u64,
    measure_at: Instant,
}

impl Sampler {
    fn new(app: &AppState) -> Self {
        let ((calls, losses), now) = (app.metrics.totals(), Instant::now());
        Self { calls, losses, at: now, memory_bytes: 0, measure_at: now }
    }

    /// Measures the memory of all processes, if that is due. It is read on a blocking thread.
    async fn measure_memory(&mut self, app: &AppState) {
        let begun = Instant::now();
        if begun < self.measure_at {
            return;
        }
        let (links, spares) = (app.links.report(|_| true), app.links.spares());
        let measure = move || {
            let links: u64 = links.iter().filter_map(|link| link.memory()).sum();
            links + spares.iter().filter_map(|spare| spare.memory()).sum::<u64>()
        };
        self.memory_bytes = tokio::task::spawn_blocking(measure).await.unwrap_or_default();
        let took = begun.elapsed();
        self.measure_at = begun + MEMORY_INTERVAL.max(took.saturating_mul(MEMORY_REST));
    }

    fn sample(&mut self, app: &AppState) -> Sample {
        let ((calls, losses), now) = (app.metrics.totals(), Instant::now());
        let mut new = calls;
        new.iter_mut().zip(self.calls).for_each(|(count, before)| *count -= before);
        let (count, millis) = (new.iter().sum::<u64>(), (now - self.at).as_millis());
        let millis = u64::try_from(millis).unwrap_or(u64::MAX).max(1);
        let sample = Sample {
            at: SystemClock.now().as_millis(),
            sessions: app.sessions.count(),
            millicalls_per_second: count.saturating_mul(1_000_000) / millis,
            p50_micros: quantile(&new, 500),
            p99_micros: quantile(&new, 990),
            losses: losses - self.losses,
            processes: app.links.used().processes,
            memory_bytes: self.memory_bytes,
        };
        (self.calls, self.losses, self.at) = (calls, losses, now);
        sample
    }
}

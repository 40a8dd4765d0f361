//! Histogram of durations.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::page::Page;

/// Upper bounds of the buckets in microseconds, and the same in seconds as they are written. They range from a local
/// in-memory tool to a browser that waits for a page.
const BOUNDS: [(u64, &str); 15] = [
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (10_000_000, "10"),
    (60_000_000, "60"),
    (600_000_000, "600"),
];

/// Number of observations in each bucket.
pub(crate) type BucketCounts = [u64; BOUNDS.len() + 1];

/// Estimates a quantile in microseconds from the counts of buckets. 990 of 1000 is the 99th percentile. Inside a bucket
/// observations count as evenly spread. `None` without observations.
pub(crate) fn quantile(counts: &BucketCounts, per_mille: u64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    let wanted = total.saturating_mul(per_mille).div_ceil(1_000);
    let mut before = 0;
    for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        if before + count >= wanted {
            let low = at.checked_sub(1).map_or(0, |at| BOUNDS[at].0);
            let Some((high, _)) = BOUNDS.get(at) else { return Some(low) };
            return Some(low + (high - low).saturating_mul(wanted - before) / count);
        }
        before += count;
    }
    None
}

/// Histogram of durations. An observation is two atomic additions and takes no lock.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// One more than there are bounds, for longer durations.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    microseconds: AtomicU64,
}

impl Histogram {
    pub(super) fn observe(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS.partition_point(|(bound, _)| *bound < micros);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.microseconds.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the number of observations in each bucket.
    pub(super) fn counts(&self) -> BucketCounts {
        std::array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed))
    }

    /// Writes the buckets in the Prometheus format, where each bucket includes the smaller ones.
    pub(super) fn write(&self, page: &mut Page, server: &str) {
        let mut count = 0;
        let bounds = BOUNDS.iter().map(|(_, seconds)| *seconds).chain(["+Inf"]);
        for (bucket, bound) in self.buckets.iter().zip(bounds) {
            count += bucket.load(Ordering::Relaxed);
            page.part("_bucket", &[("server", server), ("le", bound)], count);
        }
        let micros = self.microseconds.load(Ordering::Relaxed);
        let sum = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        page.part("_sum", &[("server", server)], sum);
        page.part("_count", &[("server", server)], count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_lies_in_its_bucket() {
        let histogram = Histogram::default();
        assert_eq!(quantile(&histogram.counts(), 500), None);
        for _ in 0..98 {
            histogram.observe(Duration::from_micros(700));
        }
        for micros in [30_000, 700_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let counts = histogram.counts();
        let at = |per_mille| quantile(&counts, per_mille).unwrap();
        assert!((500..=1_000).contains(&at(500)), "{}", at(500));
        assert!((25_000..=50_000).contains(&at(990)), "{}", at(990));
        assert_eq!(at(1_000), 600_000_000);
    }

    #[test]
    fn duration_counts_in_every_larger_bucket() {
        let histogram = Histogram::default();
        for micros in [0, 1_000, 1_001, 3_000_000, 601_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let mut page = Page::default();
        page.family("stayput_call_seconds");
        histogram.write(&mut page, "notes");
        let text = page.into_text();
        let value = |part: &str| {
            let line = text.lines().find(|line| line.contains(part)).unwrap();
            line.rsplit(' ').next().unwrap().to_owned()
        };
        let buckets = [("0.0005", "1"), ("0.001", "2"), ("0.0025", "3"), ("2.5", "3"), ("10", "4")];
        for (bound, count) in buckets {
            assert_eq!(value(&format!("le=\"{bound}\"")), count, "{text}");
        }
        assert_eq!((value("le=\"600\""), value("le=\"+Inf\"")), ("4".into(), "5".into()));
        assert_eq!((value("_sum"), value("_count")), ("604.002001".into(), "5".into()));
    }
}

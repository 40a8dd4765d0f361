//! Metrics of the gateway.
//!
//! Label values are few: the servers of the configuration, and fixed words. No label value comes from a client.

mod histogram;
mod labelled_counter;
mod page;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use stayput_core::EndReason;
use tokio::time::Instant;

use self::histogram::Histogram;
pub(crate) use self::histogram::{BucketCounts, quantile};
pub(crate) use self::page::Page;
pub(crate) use crate::observe::metrics::labelled_counter::LabelledCounter;

/// Label value for all servers together.
pub(crate) const ALL_SERVERS: &str = "all";

/// Reasons for the end of a session.
const ENDED: [&str; 4] = ["closed", "idle", "age", "evicted"];

/// Reasons for a loss of state: those of links, and one for sessions that had expired.
const LOST: [&str; 9] = [
    "exited",
    "session_unknown",
    "disconnected",
    "released",
    "stopped",
    "evicted",
    "restarted",
    "reconfigured",
    "expired",
];

/// Reasons for a refused request.
const REFUSED: [&str; 16] = [
    "malformed",
    "unauthorized",
    "foreign",
    "not_found",
    "method",
    "not_acceptable",
    "too_large",
    "too_many",
    "busy",
    "unavailable",
    "no_session",
    "no_link",
    "denied_tool",
    "invalid_message",
    "duplicate_id",
    "other",
];

/// Outcomes of a reload.
const RELOADED: [&str; 3] = ["applied", "unchanged", "refused"];

/// All counters.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Sessions opened, by server and for all servers together.
    opened: BTreeMap<String, Arc<AtomicU64>>,
    servers: BTreeMap<String, Arc<ServerMetrics>>,
    total: Arc<Total>,
}

/// Counters of all servers together.
#[derive(Debug)]
struct Total {
    resumed: AtomicU64,
    ended: LabelledCounter,
    refused: LabelledCounter,
    reloaded: LabelledCounter,
}

/// Counters of one server.
#[derive(Debug)]
struct ServerMetrics {
    lost: LabelledCounter,
    calls: Histogram,
}

/// Timer of a call. Dropping it records the duration.
#[derive(Debug)]
pub(crate) struct Timing {
    server: Arc<ServerMetrics>,
    begun: Instant,
}

impl Drop for Timing {
    fn drop(&mut self) {
        self.server.calls.observe(self.begun.elapsed());
    }
}

impl Metrics {
    /// Writes the counters of the servers that `visible` accepts.
    pub(crate) fn write_counters(&self, page: &mut Page, visible: impl Fn(&str) -> bool) {
        let Metrics { opened, servers, total } = self;
        let Total { resumed, ended, refused, reloaded } = &**total;
        page.family("stayput_sessions_opened_total");
        for (name, opened) in opened.iter().filter(|(name, _)| visible(name)) {
            page.sample(&[("server", name)], opened.load(Ordering::Relaxed));
        }
        page.family("stayput_sessions_resumed_total");
        page.sample(&[], resumed.load(Ordering::Relaxed));
        page.family("stayput_sessions_ended_total");
        for (reason, count) in ended.counts() {
            page.sample(&[("reason", reason)], count);
        }
        page.family("stayput_losses_total");
        for (name, server) in servers.iter().filter(|(name, _)| visible(name)) {
            for (reason, count) in server.lost.counts() {
                page.sample(&[("server", name), ("reason", reason)], count);
            }
        }
        page.family("stayput_requests_refused_total");
        for (reason, count) in refused.counts() {
            page.sample(&[("reason", reason)], count);
        }
        page.family("stayput_reloads_total");
        for (outcome, count) in reloaded.counts() {
            page.sample(&[("outcome", outcome)], count);
        }
    }

    /// Writes the durations of calls to the servers that `visible` accepts.
    pub(crate) fn write_durations(&self, page: &mut Page, visible: impl Fn(&str) -> bool) {
        page.family("stayput_call_seconds");
        for (name, server) in self.servers.iter().filter(|(name, _)| visible(name)) {
            server.calls.write(page, name);
        }
    }

    /// Creates zeroed counters for these servers.
    pub(crate) fn new<'a>(servers: impl Iterator<Item = &'a str>) -> Self {
        let of_server = |name: &str| {
            let of_server =
                ServerMetrics { lost: LabelledCounter::new(&LOST), calls: Histogram::default() };
            (name.to_owned(), Arc::new(of_server))
        };
        let servers: BTreeMap<_, _> = servers.map(of_server).collect();
        let labels = servers.keys().map(String::as_str).chain([ALL_SERVERS]);
        let total = Total {
            resumed: AtomicU64::default(),
            ended: LabelledCounter::new(&ENDED),
            refused: LabelledCounter::new(&REFUSED),
            reloaded: LabelledCounter::new(&RELOADED),
        };
        Self {
            opened: labels.map(|label| (label.to_owned(), Arc::default())).collect(),
            servers,
            total: total.into(),
        }
    }

    /// Returns the same counters, plus new ones for added servers. Counters of removed servers stay, because counters
    /// must not decrease.
    pub(crate) fn with<'a>(&self, servers: impl Iterator<Item = &'a str>) -> Self {
        let mut all = Self { total: self.total.clone(), ..Self::new(servers) };
        let kept = |(name, it): (&String, &Arc<_>)| (name.clone(), Arc::clone(it));
        all.opened.extend(self.opened.iter().map(kept));
        all.servers.extend(self.servers.iter().map(|(name, it)| (name.clone(), it.clone())));
        all
    }

    /// Returns the durations of all calls in buckets, and the number of losses, of all servers together.
    pub(crate) fn totals(&self) -> (BucketCounts, u64) {
        let (mut calls, mut losses) = (BucketCounts::default(), 0);
        for server in self.servers.values() {
            let counts = server.calls.counts();
            calls.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            losses += server.lost.counts().map(|(_, count)| count).sum::<u64>();
        }
        (calls, losses)
    }

    pub(crate) fn opened(&self, server: &str) {
        if let Some(opened) = self.opened.get(server) {
            opened.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn resumed(&self) {
        self.total.resumed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self, reason: EndReason) {
        self.total.ended.add(reason.as_str());
    }

    pub(crate) fn lost(&self, server: &str, reason: &str) {
        if let Some(server) = self.servers.get(server) {
            server.lost.add(reason);
        }
    }

    pub(crate) fn refused(&self, reason: &str) {
        self.total.refused.add(reason);
    }

    /// Counts a reload by its outcome.
    pub(crate) fn reloaded(&self, outcome: &str) {
        self.total.reloaded.add(outcome);
    }

    /// Starts the timer of a call to a server.
    pub(crate) fn call(&self, server: &str) -> Option<Timing> {
        let server = self.servers.get(server)?.clone();
        Some(Timing { server, begun: Instant::now() })
    }
}

#[cfg(test)]
mod tests {
    use stayput_upstream::LossReason;

    use super::*;

    /// All reasons are in the lists, so none is counted under another label.
    #[test]
    fn every_reason_has_its_own_label() {
        let ends = [EndReason::Closed, EndReason::Idle, EndReason::Age, EndReason::Evicted];
        assert!(ends.iter().all(|reason| ENDED.contains(&reason.as_str())));
        for reason in [
            LossReason::SessionUnknown,
            LossReason::Disconnected,
            LossReason::Released,
            LossReason::Stopped,
            LossReason::Evicted,
            LossReason::Restarted,
            LossReason::Reconfigured,
        ] {
            assert!(LOST.contains(&reason.as_str()), "{reason:?}");
        }
    }

    /// A server that is not configured does not become a label.
    #[test]
    fn unknown_servers_are_not_counted() {
        let metrics = Metrics::new(["notes"].into_iter());
        metrics.opened("notes");
        metrics.opened("other");
        assert!(metrics.call("other").is_none());
        drop(metrics.call("notes"));
        assert_eq!(metrics.servers.len(), 1);
        assert_eq!(metrics.opened["notes"].load(Ordering::Relaxed), 1);
        assert_eq!(metrics.opened.len(), 2);
    }

    /// Counters keep their values across a reload.
    #[test]
    fn counters_outlive_a_configuration() {
        let first = Metrics::new(["old", "kept"].into_iter());
        ["old", "kept", "kept"].iter().for_each(|server| first.opened(server));
        first.reloaded("applied");
        let next = first.with(["kept", "new"].into_iter());
        ["kept", "new"].iter().for_each(|server| next.opened(server));
        let opened = |name: &str| next.opened[name].load(Ordering::Relaxed);
        assert_eq!((opened("old"), opened("kept"), opened("new")), (1, 3, 1));
        assert_eq!(next.servers.len(), 3);
        assert_eq!(first.total.reloaded.counts().next(), Some(("applied", 1)));
    }

    /// R145: the documented metrics are the ones that exist.
    #[test]
    fn documentation_lists_all_metrics() {
        let text = include_str!("../../../../../docs/operations.md");
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `stayput_"));
        let documented: Vec<_> = rows
            .map(|row| {
                let mut cells = row.split('|').map(str::trim);
                let name = cells.next().unwrap().trim_end_matches('`');
                let (kind, labels) = (cells.next().unwrap(), cells.next().unwrap());
                (format!("stayput_{name}"), kind.to_owned(), labels.replace('`', ""))
            })
            .collect();
        let counted: Vec<_> = page::FAMILIES
            .iter()
            .map(|it| (it.name.to_owned(), it.kind.to_owned(), it.labels.join(", ")))
            .collect();
        assert_eq!(documented, counted);
        for word in ENDED.iter().chain(&LOST).chain(&REFUSED).chain(&RELOADED) {
            assert!(text.contains(&format!("`{word}`")), "{word} is not explained");
        }
    }
}

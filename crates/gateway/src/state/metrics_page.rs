//! The page of `/metrics`: counters of this process and gauges of its state.

use crate::{
    observe::{
        Observers,
        metrics::{ALL_SERVERS, Page},
    },
    state::AppState,
};

impl AppState {
    /// Renders all metrics in the Prometheus text format, for the servers that are visible in this snapshot.
    pub(crate) fn metrics_page(&self) -> String {
        let visible = |name: &str| self.servers.contains_key(name) || name == ALL_SERVERS;
        let mut page = Page::default();
        self.metrics.write_counters(&mut page, visible);
        self.gauges(&mut page);
        self.metrics.write_durations(&mut page, visible);
        let dropped = |of: fn(&Observers) -> u64| self.observers.as_deref().map_or(0, of);
        page.family("stayput_audit_dropped_total");
        page.sample(&[], dropped(Observers::audit_dropped));
        page.family("stayput_spans_dropped_total");
        page.sample(&[], dropped(Observers::spans_dropped));
        self.replicas(&mut page);
        page.into_text()
    }

    fn replicas(&self, page: &mut Page) {
        page.family("stayput_lease_held");
        page.sample(&[], u8::from(self.sessions.has_lease()));
        page.family("stayput_sessions_claimed_total");
        page.sample(&[], self.sessions.claimed());
        let Some(cluster) = &self.cluster else { return };
        let contacts = cluster.contacts();
        page.family("stayput_replicas");
        page.sample(&[], contacts.len() + 1);
        page.family("stayput_replicas_unreached");
        page.sample(&[], contacts.iter().filter(|(_, it)| it.unreached.is_some()).count());
        page.family("stayput_forwarded_requests_total");
        for (outcome, count) in cluster.forwarded.counts() {
            page.sample(&[("outcome", outcome)], count);
        }
    }

    fn gauges(&self, page: &mut Page) {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        page.family("stayput_sessions");
        page.sample(&[], number(self.sessions.count()));
        page.family("stayput_connections");
        page.sample(&[], number(self.connections.len()));
        page.family("stayput_links");
        let links = self.links.status();
        for name in self.servers.keys() {
            let live = |it: &&stayput_upstream::LinkStatus| {
                it.key.server() == name && it.generation.is_some()
            };
            page.sample(&[("server", name)], number(links.iter().filter(live).count()));
        }
        page.family("stayput_spares");
        let spares = self.links.spares();
        for name in self.servers.keys() {
            let count = spares.iter().filter(|spare| *spare.server == **name).count();
            page.sample(&[("server", name)], number(count));
        }
        page.family("stayput_processes");
        page.sample(&[], number(self.links.used().processes));
    }
}

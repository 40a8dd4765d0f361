//! Prometheus text format, version 0.0.4.

use std::fmt::{Display, Write as _};

/// Metric family: samples with one name.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    #[cfg_attr(not(test), allow(dead_code, reason = "the documentation is held against it"))]
    pub(crate) labels: &'static [&'static str],
    help: &'static str,
}

const fn family(
    name: &'static str,
    kind: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family { name, kind, labels, help }
}

/// All families.
pub(crate) const FAMILIES: [Family; 19] = [
    family("stayput_sessions_opened_total", "counter", &["server"], "Sessions that began."),
    family(
        "stayput_sessions_resumed_total",
        "counter",
        &[],
        "Sessions of an earlier process, or released by this one, whose client came back.",
    ),
    family("stayput_sessions_ended_total", "counter", &["reason"], "Sessions that are over."),
    family(
        "stayput_losses_total",
        "counter",
        &["server", "reason"],
        "Losses of state that were reported to clients.",
    ),
    family(
        "stayput_requests_refused_total",
        "counter",
        &["reason"],
        "Requests that were not passed on to a server.",
    ),
    family(
        "stayput_reloads_total",
        "counter",
        &["outcome"],
        "How often the configuration was read anew.",
    ),
    family("stayput_sessions", "gauge", &[], "Sessions that this process holds."),
    family("stayput_connections", "gauge", &[], "Connections of clients that this process knows."),
    family("stayput_links", "gauge", &["server"], "Live links to servers."),
    family(
        "stayput_spares",
        "gauge",
        &["server"],
        "Processes that were started before a session needed them.",
    ),
    family("stayput_processes", "gauge", &[], "Child processes that servers run in."),
    family(
        "stayput_call_seconds",
        "histogram",
        &["server"],
        "Time from the sending of a request to a server to its answer.",
    ),
    family(
        "stayput_audit_dropped_total",
        "counter",
        &[],
        "Lines of the audit that could not be written.",
    ),
    family("stayput_spans_dropped_total", "counter", &[], "Spans that could not be sent."),
    family(
        "stayput_lease_held",
        "gauge",
        &[],
        "Whether this process has its lease on the store: 1, or 0 while it cannot use its sessions.",
    ),
    family(
        "stayput_sessions_claimed_total",
        "counter",
        &[],
        "Sessions of other or earlier processes that this one has taken over.",
    ),
    family(
        "stayput_replicas",
        "gauge",
        &[],
        "Gateways of the cluster that live, this one included.",
    ),
    family(
        "stayput_replicas_unreached",
        "gauge",
        &[],
        "Gateways of the cluster that live and cannot be reached from this one.",
    ),
    family(
        "stayput_forwarded_requests_total",
        "counter",
        &["outcome"],
        "Requests of clients that were sent to another gateway of the cluster.",
    ),
];

/// Page that is being written.
#[derive(Debug, Default)]
pub(crate) struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    /// Starts a family: the samples that follow belong to it.
    pub(crate) fn family(&mut self, name: &str) {
        if let Some(Family { name, kind, help, .. }) = FAMILIES.iter().find(|it| it.name == name) {
            // Writing to a `String` never fails.
            let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            self.name = name;
        }
    }

    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.part("", labels, value);
    }

    /// Writes a sample of a family whose samples have several names.
    pub(crate) fn part(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (at, (name, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{value}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        let mut page = Page::default();
        page.family("stayput_links");
        page.sample(&[("server", "a\"b\\c")], 3);
        let text = page.into_text();
        assert!(text.ends_with("stayput_links{server=\"a\\\"b\\\\c\"} 3\n"), "{text}");
        assert!(text.starts_with("# HELP stayput_links "), "{text}");
    }
}

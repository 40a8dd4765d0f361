//! `/admin/servers`: profiles of the servers, and their links and processes.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;
use stayput_core::Owner;
use stayput_upstream::{LinkReport, Profile, Server};
use stayput_wire::{Era, Raw};

use super::{
    Answer, json,
    view::{ErrorView, LinkView},
};
use crate::{call::sessionless::Sessionless, observe::session_stats, state::AppState};

/// Answer of `/admin/servers`.
#[derive(Serialize)]
struct Servers {
    servers: Vec<ServerView>,
}

#[derive(Default, Serialize)]
struct ServerView {
    name: String,
    /// Whether the server is in the configuration. Otherwise a client brought it.
    configured: bool,
    transport: Option<&'static str>,
    /// Profile of the server. `None` before its first use.
    profile: Option<ProfileView>,
    state: &'static str,
    links: usize,
    in_flight: usize,
    processes: usize,
    memory_bytes: u64,
    last_error: Option<ErrorView>,
    /// End of the stderr of a live process.
    stderr: String,
}

#[derive(Serialize)]
struct ProfileView {
    era: &'static str,
    isolation: &'static str,
    name: Option<String>,
    version: Option<String>,
    tools: usize,
}

pub(super) async fn list(app: &Arc<AppState>) -> Answer {
    let mut reports: BTreeMap<String, Vec<LinkReport>> = BTreeMap::new();
    for report in app.links.report(|_| true) {
        reports.entry(report.key.server().to_owned()).or_default().push(report);
    }
    let mut servers = Vec::new();
    for (name, server) in &app.servers {
        let common = Sessionless::new(app, &Owner::local(), false);
        let profile = app.links.known_profile(server, common.link_owner()).await;
        // Since then it may have worked for a client.
        let failure = app.health.server_failure(name).filter(|_| profile.is_none());
        let view = ServerView {
            name: name.clone(),
            configured: true,
            transport: Some(transport(server)),
            profile: profile.map(|profile| ProfileView::new(server, &profile)),
            state: if failure.is_some() { "failed" } else { "" },
            last_error: failure.map(|reason| ErrorView::of_start(name, &reason)),
            ..ServerView::default()
        };
        servers.push((view, reports.remove(name).unwrap_or_default()));
    }
    // Servers that clients of the socket have brought.
    servers.extend(
        reports
            .into_iter()
            .map(|(name, links)| (ServerView { name, ..ServerView::default() }, links)),
    );
    let look = move || servers.into_iter().map(|(view, links)| view.with(&links)).collect();
    let servers = tokio::task::spawn_blocking(look).await.unwrap_or_default();
    Ok(json(&Servers { servers }))
}

fn transport(server: &Server) -> &'static str {
    match (server.is_process(), server.is_sse()) {
        (true, _) => "stdio",
        (false, true) => "sse",
        (false, false) => "http",
    }
}

impl ServerView {
    fn with(mut self, reports: &[LinkReport]) -> Self {
        for report in reports {
            let link = LinkView::new(report, true);
            self.links += usize::from(link.state == "live");
            self.in_flight += link.in_flight;
            self.processes += usize::from(link.pid.is_some());
            self.memory_bytes += link.memory_bytes.unwrap_or_default();
            if link.state == "resting" {
                self.state = "resting";
            }
            self.last_error = link.trouble.or(self.last_error);
            if self.stderr.is_empty() {
                self.stderr = session_stats::tail(&report.stderr_tail()).to_owned();
            }
        }
        if self.state.is_empty() {
            let known = self.profile.is_some() || self.links > 0;
            self.state = if known { "ready" } else { "unused" };
        }
        self
    }
}

impl ProfileView {
    fn new(server: &Server, profile: &Profile) -> Self {
        let era = profile.era();
        let initialize_result = profile.initialize_result();
        let info = |name: &str| {
            let info = Raw::parse(initialize_result.result()).ok()?;
            Some(info.find(&["serverInfo", name])?.text()?.into_owned())
        };
        let tools = profile.pages("tools/list").iter().filter_map(|page| {
            let page = Raw::parse(str::from_utf8(page).ok()?).ok()?;
            Some(page.find(&["tools"])?.elements().count())
        });
        Self {
            era: match era {
                Era::Legacy => "legacy",
                Era::Modern => "modern",
            },
            isolation: profile.isolation(server).as_str(),
            name: info("name"),
            version: info("version"),
            tools: tools.sum(),
        }
    }
}

//! Probe of one server: starts it, lists its tools, and opens two sessions at once.

use std::{borrow::Cow, path::PathBuf, sync::Arc};

use stayput_core::{Owner, SessionId, Timestamp};
use stayput_identify::{SessionArgument, tool_names};
use stayput_process::StartError;
use stayput_upstream::{
    Delivery, Isolation, LinkOpenError, LinkOpenOptions, LinkOwner, Links, PooledLink, Profile,
    Server,
};
use stayput_wire::Era;
use tokio::time::Instant;

use super::{
    files,
    finding::{Finding, ProbedIsolation, ServerReport},
};
use crate::commands::check::isolation_probe::{self, ProbeOutcome, SessionPair};

/// Maximum number of names in a message.
const MAX_NAMES: usize = 5;

/// Probe of one server.
pub(super) struct Probe<'a> {
    pub(super) links: &'a Links,
    pub(super) server: &'a Server,
    /// Whether tools may be called.
    pub(super) calls: bool,
}

/// Result of a server that cannot be probed, because its entry is invalid.
pub(super) fn broken(name: &str, finding: Finding) -> ServerReport {
    let findings = vec![finding];
    ServerReport { name: name.to_owned(), transport: "-", findings, ..ServerReport::default() }
}

impl Probe<'_> {
    /// Runs the probe. All links that it opens are ended again.
    pub(super) async fn run(&self) -> ServerReport {
        let transport = match (self.server.is_process(), self.server.is_sse()) {
            (true, _) => "stdio",
            (_, true) => "sse",
            _ => "http",
        };
        let name = self.server.name().to_owned();
        let mut found = ServerReport { name, transport, ..ServerReport::default() };
        let begun = Instant::now();
        let place = place(Owner::local());
        let learned = self.links.profile(self.server, &place).await;
        let _ = self.links.end(place.session).await;
        match learned {
            Ok(profile) => {
                found.millis = Some(begun.elapsed().as_millis());
                self.describe(&mut found, &profile);
                self.note_dual_url(&mut found, &profile).await;
                self.pair(&mut found, &profile).await;
            }
            Err(error) => found.findings.push(describe_open_error(&error, "")),
        }
        found
    }

    /// Records the era, the version and the tools of the server.
    fn describe(&self, found: &mut ServerReport, profile: &Profile) {
        let (initialize_result, pages) = (profile.initialize_result(), profile.pages("tools/list"));
        found.era = Some(match profile.era() {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        });
        found.version = Some(initialize_result.version().as_str().to_owned());
        let names = tools(profile);
        found.tools = initialize_result.has("tools").then_some(names.len());
        if profile.lacks("tools/list") {
            let what = "it says that it has tools, and does not list them";
            found.findings.push(Finding::new(what));
        }
        let argument = SessionArgument::for_pages(pages);
        let left = argument.unlisted();
        if self.isolation(profile) != Isolation::Shared && !left.is_empty() {
            found.notes.push(format!(
                "{} of its tools show no argument for a session, because their schemas have no place \
                 for one ({}); they take it all the same",
                left.len(),
                some(left)
            ));
        }
    }

    /// Notes a URL that keeps state for legacy clients only.
    async fn note_dual_url(&self, found: &mut ServerReport, profile: &Profile) {
        let modern = self.server.for_client(Era::Modern);
        let by_client = modern.preferred_era() != self.server.preferred_era();
        if self.server.is_process() || profile.era() == Era::Modern || !by_client {
            return;
        }
        let place = place(Owner::local());
        let learned = self.links.profile(modern, &place).await;
        let _ = self.links.end(place.session).await;
        if learned.is_ok_and(|modern| modern.is_dual()) {
            let note = "it speaks both eras: modern clients are passed through without a session; \
                        `\"era\": \"legacy\"` keeps one for them";
            found.notes.push(note.to_owned());
        }
    }

    fn isolation(&self, profile: &Profile) -> Isolation {
        profile.isolation(self.server)
    }

    /// Opens two sessions at once and compares them.
    async fn pair(&self, found: &mut ServerReport, profile: &Profile) {
        let isolation = self.isolation(profile);
        if isolation == Isolation::Shared {
            found.isolation = ProbedIsolation::Shared;
            if profile.era() == Era::Legacy {
                let note = "all sessions share one state, because `isolation` is `shared`";
                found.notes.push(note.to_owned());
            }
            return;
        }
        // With per-owner isolation two sessions of one owner share a link by design, so the probe uses two owners.
        let owners = match isolation {
            Isolation::PerOwner => ["one", "two"].map(|name| Owner::verified("check", name)),
            _ => [Ok(Owner::local()), Ok(Owner::local())],
        };
        let [Ok(one), Ok(two)] = owners else { return };
        let (one, two) = (place(one), place(two));
        self.both(found, profile, [&one, &two]).await;
        let _ = tokio::join!(self.links.end(one.session), self.links.end(two.session));
    }

    async fn both(&self, found: &mut ServerReport, profile: &Profile, [one, two]: [&LinkOwner; 2]) {
        let open = |place| self.open(place);
        let (first, second) = tokio::join!(open(one), open(two));
        let (first, second) = match (first, second) {
            (Ok(first), Ok(second)) => (first, second),
            (Err(error), Err(_)) => {
                found.findings.push(describe_open_error(&error, ""));
                return;
            }
            (Err(error), _) | (_, Err(error)) => {
                found.isolation = ProbedIsolation::SecondFails;
                let finding =
                    describe_open_error(&error, "a second session does not work beside a first: ");
                found.findings.push(finding.remedy(isolation_probe::remedy(&tools(profile))));
                return;
            }
        };
        found.isolation = match (self.server.is_process(), first.keeps_state()) {
            (true, _) => ProbedIsolation::OwnProcess,
            (false, true) => ProbedIsolation::OwnSession,
            (false, false) => ProbedIsolation::Stateless,
        };
        let not_messages = first.counts().invalid_lines;
        if not_messages > 0 {
            let lines = if not_messages == 1 { "line" } else { "lines" };
            found.warnings.push(format!(
                "it writes text to its standard output that is not JSON-RPC ({not_messages} {lines} so far), which makes \
                 some clients fail: let it log to stderr"
            ));
        }
        let names = tools(profile);
        let pair = SessionPair { first: &first, second: &second };
        if self.calls
            && let Some(seen) = isolation_probe::look(&pair, &names).await
        {
            found.probed = true;
            record_isolation(found, seen, &names);
        }
        if let Some((one, two)) = first.pid().zip(second.pid())
            && found.findings.is_empty()
        {
            let both = tokio::task::spawn_blocking(move || files::written_by_both(one, two)).await;
            found.note_files(&both.unwrap_or_default());
        }
    }

    async fn open(&self, place: &LinkOwner) -> Result<PooledLink, Arc<LinkOpenError>> {
        self.links.open(self.server, place, &LinkOpenOptions::default()).await
    }
}

impl ServerReport {
    /// Records files that both sessions write to.
    fn note_files(&mut self, both: &[PathBuf]) {
        if both.is_empty() {
            return;
        }
        self.isolation = ProbedIsolation::Mixed;
        let files: Vec<String> = both.iter().map(|file| file.display().to_string()).collect();
        let what = format!("the processes of two sessions both write to {}", some(&files));
        self.findings.push(Finding::new(what).remedy(isolation_probe::remedy(&[])));
    }
}

fn record_isolation(found: &mut ServerReport, seen: ProbeOutcome, tools: &[String]) {
    match seen {
        ProbeOutcome::Apart => found.isolation = ProbedIsolation::Apart,
        ProbeOutcome::Mixed(what) => {
            found.isolation = ProbedIsolation::Mixed;
            found.findings.push(Finding::new(what).remedy(isolation_probe::remedy(tools)));
        }
        ProbeOutcome::SecondFails(what) => {
            found.isolation = ProbedIsolation::SecondFails;
            found.findings.push(Finding::new(what).remedy(isolation_probe::remedy(tools)));
        }
        ProbeOutcome::Fails(what) => found.findings.push(Finding::new(what)),
    }
}

/// Describes why there is no link, with the remedy.
fn describe_open_error(error: &LinkOpenError, before: &str) -> Finding {
    let finding = Finding::new(format!("{before}{error}"));
    match error {
        // For other commands the message names the remedy.
        LinkOpenError::Start { error: StartError::NotFound { command }, .. }
            if !command.contains(['/', ' ']) =>
        {
            finding.remedy(format!(
                "in a shell, `which {command}` prints its full path; the PATH of a service or an editor is often shorter \
                 than that of a shell"
            ))
        }
        LinkOpenError::Exited { .. } => finding.remedy(
            "start its command by hand to see why it ends; variables of the environment that it needs \
             stand in \"env\", or their names in \"stayput\": { \"inherit\": […] }",
        ),
        LinkOpenError::Unauthorized { challenge: None, .. } => {
            finding.remedy("put the credentials that it wants into \"headers\"")
        }
        // An answer tells what to do, and the server runs.
        LinkOpenError::Http { delivery: Delivery::NotSent, .. } => {
            finding.remedy("start it, or correct its \"url\"")
        }
        _ => finding,
    }
}

fn place(owner: Owner) -> LinkOwner {
    LinkOwner::new(owner, SessionId::generate(Timestamp::from_millis(0)))
}

/// Returns the names of a server's tools.
fn tools(profile: &Profile) -> Vec<String> {
    tool_names(profile.pages("tools/list")).map(Cow::into_owned).collect()
}

/// Joins the first few names.
fn some(names: &[String]) -> String {
    let shown = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMES { format!("{shown}, …") } else { shown }
}

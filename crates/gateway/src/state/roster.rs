//! Roster of the servers: available or not.

use std::{collections::HashMap, sync::Arc, time::Duration};

use stayput_core::Owner;
use stayput_upstream::{LinkOpenError, LinkOwner, Profile, Server};
use stayput_wire::Era;
use tokio::{runtime::Handle, time::Instant};

use crate::{auth::Claims, config::target::Target, reply::loss::LISTS_CHANGED, state::AppState};
use futures_util::future::join_all;
use stayput_sync::Mutex;

/// Time to wait for a server that was never reached. Later requests go on without it, and listening clients are
/// notified when it becomes available.
const PROFILE_TIMEOUT: Duration = Duration::from_secs(4);

/// Minimum time to look up a profile that is already known.
const CACHED_PROFILE_TIMEOUT: Duration = Duration::from_millis(250);

/// All servers, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub(crate) present: Vec<AvailableServer>,
    pub(crate) absent: Vec<UnavailableServer>,
}

/// Server whose profile is known.
#[derive(Debug)]
pub(crate) struct AvailableServer {
    pub(crate) name: String,
    pub(crate) profile: Arc<Profile>,
}

/// Server that is left out.
#[derive(Debug)]
pub(crate) struct UnavailableServer {
    pub(crate) name: String,
    /// Reason, in words that a model may read.
    pub(crate) reason: String,
}

/// Client for which servers are asked.
#[derive(Clone)]
pub(crate) struct Caller<'a> {
    pub(crate) owner: &'a Owner,
    /// Protocol era that the client speaks.
    pub(crate) era: Era,
    /// Owner of the client's links, if it has a session.
    pub(crate) link_owner: Option<LinkOwner>,
}

impl Roster {
    /// Queries all servers concurrently for their profiles, as far as these are not known. It starts no child for the
    /// session, and does not wait for a server that does not answer.
    pub(crate) async fn call(app: &Arc<AppState>, caller: &Caller<'_>) -> Self {
        let asked = app.servers.values().map(|server| {
            let caller = caller.clone();
            async move { (server.name().to_owned(), ask(app, caller, server).await) }
        });
        let mut roster = Self::default();
        for (name, answer) in join_all(asked).await {
            match answer {
                Ok(profile) => roster.present.push(AvailableServer { name, profile }),
                Err(reason) => roster.absent.push(UnavailableServer { name, reason }),
            }
        }
        roster
    }
}

/// Returns the profile of one server, or the reason why it is not available.
pub(crate) async fn ask(
    app: &Arc<AppState>,
    caller: Caller<'_>,
    server: &Server,
) -> Result<Arc<Profile>, String> {
    let absences = &app.aggregate.absences;
    let left = absences.time_left(server.name(), Instant::now());
    let Caller { owner, era, link_owner } = caller;
    let mut learning =
        Box::pin(learn(app.clone(), (owner.clone(), era), link_owner, server.clone()));
    match tokio::time::timeout(left, &mut learning).await {
        Ok(learned) => settle(app, server, learned),
        Err(_) => {
            if absences.watch(server.name()) {
                // The caller goes on without this server, and the attempt continues in the background.
                let (app, server) = (app.clone(), server.clone());
                Handle::current().spawn(async move {
                    let learned = learning.await;
                    let _ = settle(&app, &server, learned);
                });
            }
            Err(format!("the server `{}` has not answered yet", server.name()))
        }
    }
}

async fn learn(
    app: Arc<AppState>,
    (owner, era): (Owner, Era),
    link_owner: Option<LinkOwner>,
    server: Server,
) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
    app.adopt_profile(&server, &owner).await;
    let server = app.server_for(&server, &owner, (era, None)).await;
    match link_owner {
        Some(link_owner) => app.links.profile(server, &link_owner).await,
        None => app.profile(server, &owner).await,
    }
}

/// Records the outcome. Each failure is logged once, and clients are notified when the server is back.
fn settle(
    app: &AppState,
    server: &Server,
    learned: Result<Arc<Profile>, Arc<LinkOpenError>>,
) -> Result<Arc<Profile>, String> {
    let (name, absences) = (server.name(), &app.aggregate.absences);
    match learned {
        Ok(profile) => {
            if absences.over(name) {
                tracing::info!(server = name, "the server `{name}` is there now");
                let kinds =
                    LISTS_CHANGED.iter().filter(|(kind, _)| profile.initialize_result().has(kind));
                for (_, text) in kinds {
                    let sees =
                        |owner: &Owner, claims: &Claims| app.visibility.show(name, owner, claims);
                    app.connections.tell(&Target::All, text, sees);
                }
            }
            Ok(profile)
        }
        Err(error) => {
            let reason = match &*error {
                // The client gets the reason of the failed attempt, not the fact that another client made it.
                LinkOpenError::BackingOff { brief, .. } => brief.clone(),
                error => error.brief(),
            };
            let of_server =
                !matches!(*error, LinkOpenError::Ended { .. } | LinkOpenError::AtCapacity(_));
            if absences.failed(name, of_server.then_some(&*reason)) {
                tracing::warn!(server = name, "left out of /mcp: {error}");
            }
            Err(reason)
        }
    }
}

/// Servers that are not available, by name.
#[derive(Debug, Default)]
pub(crate) struct ServerOutages(Mutex<HashMap<String, ServerOutage>>);

#[derive(Debug, Default)]
struct ServerOutage {
    /// Start of the current attempt.
    asked: Option<Instant>,
    /// Whether a task waits for the server in the background.
    watched: bool,
    /// Reason of the failure, as it was logged.
    reason: Option<String>,
}

impl ServerOutages {
    /// Returns the time left to wait for a server. All callers wait for the same attempt.
    fn time_left(&self, server: &str, now: Instant) -> Duration {
        let mut all = self.0.lock();
        let asked = all.entry(server.to_owned()).or_default().asked.get_or_insert(now);
        PROFILE_TIMEOUT
            .saturating_sub(now.saturating_duration_since(*asked))
            .max(CACHED_PROFILE_TIMEOUT)
    }

    /// Marks a server as watched. Returns whether the caller has to wait for it in the background.
    fn watch(&self, server: &str) -> bool {
        let mut all = self.0.lock();
        !std::mem::replace(&mut all.entry(server.to_owned()).or_default().watched, true)
    }

    /// Removes a server that is available again. Returns whether it was missed.
    fn over(&self, server: &str) -> bool {
        let absence = self.0.lock().remove(server);
        absence.is_some_and(|absence| absence.watched || absence.reason.is_some())
    }

    /// Records a failure, with its reason if the server caused it. Returns whether the reason is new.
    fn failed(&self, server: &str, reason: Option<&str>) -> bool {
        let mut all = self.0.lock();
        let absence = all.entry(server.to_owned()).or_default();
        (absence.asked, absence.watched) = (None, false);
        let news = reason.is_some_and(|reason| absence.reason.as_deref() != Some(reason));
        if news {
            absence.reason = reason.map(str::to_owned);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_share_the_wait_for_one_attempt() {
        let (absences, now) = (ServerOutages::default(), Instant::now());
        assert_eq!(absences.time_left("a", now), PROFILE_TIMEOUT);
        let later = now + PROFILE_TIMEOUT * 2;
        assert_eq!(absences.time_left("a", now + PROFILE_TIMEOUT / 2), PROFILE_TIMEOUT / 2);
        assert_eq!(absences.time_left("a", later), CACHED_PROFILE_TIMEOUT);
        assert_eq!(absences.time_left("b", later), PROFILE_TIMEOUT);
        assert!(absences.watch("a") && !absences.watch("a"));
        assert!(absences.failed("a", Some("broken")) && !absences.failed("a", Some("broken")));
        assert!(!absences.failed("a", None));
        assert_eq!(
            absences.time_left("a", later),
            PROFILE_TIMEOUT,
            "the next attempt is waited for again"
        );
        assert!(absences.over("a") && !absences.over("a"));
        absences.time_left("c", later);
        assert!(!absences.over("c"), "nobody missed it");
    }
}

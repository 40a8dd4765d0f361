//! Which servers are there, and which are not.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use stayput_core::Owner;
use stayput_upstream::{OpenError, Place, Profile, Server};
use tokio::{runtime::Handle, time::Instant};

use crate::{auth::Claims, config::target::Target, reply::loss::LISTS_CHANGED, state::AppState};
use futures_util::future::join_all;

/// How long a server that nobody knows yet is waited for. The others are not held up any longer by it;
/// whoever listens is told when it comes.
const PATIENCE: Duration = Duration::from_secs(4);

/// How long what is known may take to be looked up.
const LOOK: Duration = Duration::from_millis(250);

/// All servers, in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub(crate) present: Vec<Present>,
    pub(crate) absent: Vec<Absent>,
}

/// A server of which is known what it has.
#[derive(Debug)]
pub(crate) struct Present {
    pub(crate) name: String,
    pub(crate) profile: Arc<Profile>,
}

/// A server that is left out.
#[derive(Debug)]
pub(crate) struct Absent {
    pub(crate) name: String,
    /// Why, in words that a model may read.
    pub(crate) reason: String,
}

impl Roster {
    /// Asks all servers at once what they have, as far as that is not known. No child is started for
    /// the session by that, and nobody waits for one that does not answer. `place` is in whose name they
    /// are asked, if there is a session.
    pub(crate) async fn call(app: &Arc<AppState>, owner: &Owner, place: Option<Place>) -> Self {
        let asked = app.servers.values().map(|server| {
            let place = place.clone();
            async move { (server.name().to_owned(), ask(app, owner, place, server).await) }
        });
        let mut roll = Self::default();
        for (name, answer) in join_all(asked).await {
            match answer {
                Ok(profile) => roll.present.push(Present { name, profile }),
                Err(reason) => roll.absent.push(Absent { name, reason }),
            }
        }
        roll
    }
}

/// What is known of one server; if it is not there, why.
pub(crate) async fn ask(
    app: &Arc<AppState>,
    owner: &Owner,
    place: Option<Place>,
    server: &Server,
) -> Result<Arc<Profile>, String> {
    let absences = &app.aggregate.absences;
    let left = absences.patience(server.name(), Instant::now());
    let mut learning = Box::pin(learn(app.clone(), owner.clone(), place, server.clone()));
    match tokio::time::timeout(left, &mut learning).await {
        Ok(learned) => settle(app, server, learned),
        Err(_) => {
            if absences.watch(server.name()) {
                // Whoever asked goes on without it, and the attempt goes on as well.
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
    owner: Owner,
    place: Option<Place>,
    server: Server,
) -> Result<Arc<Profile>, Arc<OpenError>> {
    match place {
        Some(place) => app.links.profile(&server, &place).await,
        None => app.profile(&server, &owner).await,
    }
}

/// Notes how it went: whoever runs the gateway hears of each failure once, and clients of the return.
fn settle(
    app: &AppState,
    server: &Server,
    learned: Result<Arc<Profile>, Arc<OpenError>>,
) -> Result<Arc<Profile>, String> {
    let (name, absences) = (server.name(), &app.aggregate.absences);
    match learned {
        Ok(profile) => {
            if absences.over(name) {
                app.log.info(&format!("the server `{name}` is there now"));
                let kinds = LISTS_CHANGED.iter().filter(|(kind, _)| profile.greeting().has(kind));
                for (_, text) in kinds {
                    let sees = |owner: &Owner, claims: &Claims| app.views.show(name, owner, claims);
                    app.connections.tell(&Target::All, text, sees);
                }
            }
            Ok(profile)
        }
        Err(error) => {
            let reason = match &*error {
                // Whoever asks is not told that somebody else had asked before.
                OpenError::Resting { brief, .. } => brief.clone(),
                error => error.brief(),
            };
            let of_server = !matches!(*error, OpenError::Ended { .. } | OpenError::AtCapacity(_));
            if absences.failed(name, of_server.then_some(&*reason)) {
                app.log.warn(&format!("left out of /mcp: {error}"));
            }
            Err(reason)
        }
    }
}

/// What is remembered of servers that are not there.
#[derive(Debug, Default)]
pub(crate) struct Absences(Mutex<HashMap<String, Absence>>);

#[derive(Debug, Default)]
struct Absence {
    /// Since when it is asked.
    asked: Option<Instant>,
    /// Somebody waits for it in the background.
    watched: bool,
    /// How it failed, as it was logged.
    reason: Option<String>,
}

impl Absences {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Absence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a server is still waited for: all who ask wait for the same attempt.
    fn patience(&self, server: &str, now: Instant) -> Duration {
        let mut all = self.lock();
        let asked = all.entry(server.to_owned()).or_default().asked.get_or_insert(now);
        PATIENCE.saturating_sub(now.saturating_duration_since(*asked)).max(LOOK)
    }

    /// It takes too long. Says whether somebody has to wait for it from now on.
    fn watch(&self, server: &str) -> bool {
        let mut all = self.lock();
        !std::mem::replace(&mut all.entry(server.to_owned()).or_default().watched, true)
    }

    /// It is there. Says whether anybody missed it.
    fn over(&self, server: &str) -> bool {
        let absence = self.lock().remove(server);
        absence.is_some_and(|absence| absence.watched || absence.reason.is_some())
    }

    /// It failed, for this reason if that is its own doing. Says whether that is news.
    fn failed(&self, server: &str, reason: Option<&str>) -> bool {
        let mut all = self.lock();
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
    fn nobody_waits_twice_for_the_same_attempt() {
        let (absences, now) = (Absences::default(), Instant::now());
        assert_eq!(absences.patience("a", now), PATIENCE);
        let later = now + PATIENCE * 2;
        assert_eq!(absences.patience("a", now + PATIENCE / 2), PATIENCE / 2);
        assert_eq!(absences.patience("a", later), LOOK);
        assert_eq!(absences.patience("b", later), PATIENCE);
        assert!(absences.watch("a") && !absences.watch("a"));
        assert!(absences.failed("a", Some("broken")) && !absences.failed("a", Some("broken")));
        assert!(!absences.failed("a", None));
        assert_eq!(absences.patience("a", later), PATIENCE, "the next attempt is waited for again");
        assert!(absences.over("a") && !absences.over("a"));
        absences.patience("c", later);
        assert!(!absences.over("c"), "nobody missed it");
    }
}

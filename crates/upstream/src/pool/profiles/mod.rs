//! Cache of server profiles. Each is learned once.

mod learned;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use stayput_core::{Owner, SessionId};

use self::learned::{Entered, Learned};
use crate::{
    Cost, EraChoice, Hello, Identity, Isolation, Link, LinkOpenError, Links, LossReason, Profile,
    Scope, Server, Way,
    budget::link_permit::LinkPermit,
    open::{
        handshake::Refusal,
        opener::{Opener, Plan},
    },
    util::{
        flag::{Flag, Trace},
        lock::lock,
    },
};

/// Timeout for lists that are fetched again, because other requests wait for them.
const RELEARNING: Duration = Duration::from_secs(4);

/// Number of per-owner lists above which unused ones are dropped.
const MAX_CACHED_OWNERS: usize = 4096;

/// Number of distinct client capabilities for which one server is probed. Further clients get a known profile.
const KINDS: usize = 32;

/// Profiles of all servers, by configuration, credentials and era order: a server that speaks both eras can
/// have two profiles.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    learned: Mutex<HashMap<Identity, Arc<Learned>>>,
    /// Further identities of a server: one per set of declared client capabilities.
    kinds: Mutex<HashMap<Identity, Vec<Identity>>>,
    /// Lists that were fetched again on links of one owner. Other owners must not see them, even with the
    /// same credentials (E23).
    changed: Mutex<HashMap<Identity, Arc<Learned>>>,
    closed: AtomicBool,
}

/// Identity of a profile and the owner that requests it. No owner where all owners see the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose<'a> {
    pub(crate) identity: Identity,
    pub(crate) owner: Option<&'a Owner>,
}

impl From<Identity> for Whose<'_> {
    fn from(identity: Identity) -> Self {
        Self { identity, owner: None }
    }
}

/// Request for a profile, with the scope whose credentials are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) links: &'a Links,
    pub(crate) server: &'a Server,
    pub(crate) scope: &'a Scope,
}

impl Profiles {
    fn place(&self, identity: Identity) -> Arc<Learned> {
        lock(&self.learned).entry(identity).or_default().clone()
    }

    /// Returns the cache entry for lists of this owner.
    fn own(&self, whose: Whose<'_>) -> Arc<Learned> {
        let Some(owner) = whose.owner else { return self.place(whose.identity) };
        let mut changed = lock(&self.changed);
        if changed.len() >= MAX_CACHED_OWNERS {
            changed.retain(|_, own| Arc::strong_count(own) > 1);
        }
        changed.entry(whose.identity.seen_by(owner)).or_default().clone()
    }

    /// Returns the cached profile.
    pub(crate) fn known<'a>(&self, whose: impl Into<Whose<'a>>) -> Option<Arc<Profile>> {
        let Whose { identity, owner } = whose.into();
        let own = owner.and_then(|owner| {
            let changed = lock(&self.changed);
            changed.get(&identity.seen_by(owner)).cloned()
        });
        own.and_then(|own| own.known()).or_else(|| self.place(identity).known())
    }

    /// Returns the key for this owner. Lists from shared links apply to all owners.
    pub(crate) fn whose<'a>(
        &self,
        server: &Server,
        identity: Identity,
        owner: &'a Owner,
    ) -> Whose<'a> {
        let known = self.any(identity).map(|known| server.isolation(known.way().era()));
        let owner = (known != Some(Isolation::Shared)).then_some(owner);
        Whose { identity, owner }
    }

    /// Stores a profile that was learned earlier or in another process.
    pub(crate) fn set(&self, identity: Identity, profile: Arc<Profile>) {
        self.place(identity).set(profile);
    }

    /// Returns the cached profile, or learns it on a temporary link. Concurrent requests wait for the same
    /// link, which has the scope of the first one. A cancelled request does not cancel the others.
    pub(crate) async fn get(&self, asker: Asker<'_>) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let identity = asker.identity().await?;
        if let Some(known) = self.known(Whose { identity, owner: asker.scope.owner() }) {
            return Ok(known);
        }
        self.learned(asker, identity, Hello::default()).await
    }

    /// Returns the profile for a client with these capabilities: some servers list more tools for such clients.
    pub(crate) async fn get_for(
        &self,
        asker: Asker<'_>,
        hello: &Hello,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let identity = asker.identity().await?;
        // On a shared link, clients receive no requests of the server.
        let alone = matches!(asker.scope, Scope::Session { .. });
        if !alone || !hello.declares_anything() {
            return self.get(asker).await;
        }
        let kind = identity.declaring(hello.capabilities());
        // Modern servers list the same for all clients.
        if let Some(known) = self.any(identity)
            && (known.way() == Way::Modern || !self.admits(identity, kind))
        {
            return Ok(known);
        }
        let profile = self.learned(asker, kind, Hello::default().declaring(hello)).await?;
        let mut kinds = lock(&self.kinds);
        let kinds = kinds.entry(identity).or_default();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
        Ok(profile)
    }

    /// Returns any profile of the server, because transport and era are the same for all clients.
    pub(crate) async fn spoken(
        &self,
        asker: Asker<'_>,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let identity = asker.identity().await?;
        match self.any(identity) {
            Some(known) => Ok(known),
            None => self.learned(asker, identity, Hello::default()).await,
        }
    }

    /// Returns any cached profile of the server, for any client capabilities.
    fn any(&self, identity: Identity) -> Option<Arc<Profile>> {
        let kinds = lock(&self.kinds).get(&identity).cloned().unwrap_or_default();
        std::iter::once(identity).chain(kinds).find_map(|one| self.known(one))
    }

    /// Whether the server is probed for one more set of client capabilities.
    fn admits(&self, identity: Identity, kind: Identity) -> bool {
        let kinds = lock(&self.kinds);
        kinds.get(&identity).is_none_or(|kinds| kinds.len() < KINDS || kinds.contains(&kind))
    }

    async fn learned(
        &self,
        asker: Asker<'_>,
        identity: Identity,
        hello: Hello,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let Asker { links, server, scope } = asker;
        let opener = links.opener();
        let place = self.place(identity);
        let mut waited = None;
        loop {
            if self.closed.load(Ordering::SeqCst) {
                return Err(Arc::new(ended(server)));
            }
            let changed = place.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match place.enter(waited, server, scope) {
                Entered::Known(profile) => return Ok(profile),
                Entered::Failed(error) => return Err(error),
                Entered::Wait(attempt) => waited = Some(attempt),
                Entered::Learn(attempt, trace) => {
                    waited = Some(attempt);
                    let lesson = Lesson {
                        place: place.clone(),
                        attempt,
                        links: links.clone(),
                        opener: opener.clone(),
                        server: server.clone(),
                        scope: scope.clone(),
                        hello: hello.clone(),
                        trace,
                    };
                    let task = opener.runtime.spawn(lesson.run());
                    place.learning(attempt, task.abort_handle());
                }
            }
            changed.await;
        }
    }

    /// Fetches the lists again on a link whose server reported a change, or if a list is missing. Concurrent
    /// requests wait for the same answers.
    pub(crate) async fn relearn(&self, whose: Whose<'_>, link: &Link) -> Option<Arc<Profile>> {
        let place = self.own(whose);
        let _one = place.relearning.lock().await;
        self.relearn_alone(whose, &place, link).await
    }

    async fn relearn_alone(
        &self,
        whose: Whose<'_>,
        place: &Learned,
        link: &Link,
    ) -> Option<Arc<Profile>> {
        let known = place.known().or_else(|| self.known(whose))?;
        let changes = link.lists_changed();
        if changes == 0 && known.is_whole() {
            return Some(known);
        }
        // Marked as fetched even on a timeout, so that a silent server is not result again before its next change.
        let result = tokio::time::timeout(RELEARNING, known.relearned(link)).await;
        link.lists_learned(changes);
        let Ok(profile) = result else { return Some(known) };
        let profile = Arc::new(profile);
        place.set(profile.clone());
        // Profiles for other client capabilities may differ and are dropped.
        let kinds = lock(&self.kinds).get(&whose.identity).cloned().unwrap_or_default();
        kinds.into_iter().for_each(|kind| self.place(kind).forget());
        Some(profile)
    }

    /// Returns the cached profile after a check for reported list changes. `links` returns the links with
    /// changes, the preferred one first. `changes` counts the reports of all links, and skips the check if it
    /// did not grow.
    pub(crate) async fn current(
        &self,
        whose: Whose<'_>,
        changes: u64,
        links: impl FnOnce() -> Vec<Link>,
    ) -> Option<Arc<Profile>> {
        if changes == 0 {
            return self.known(whose);
        }
        let place = self.own(whose);
        if place.looked.load(Ordering::Acquire) >= changes {
            return self.known(whose);
        }
        let _one = place.relearning.lock().await;
        let known = self.known(whose)?;
        if place.looked.load(Ordering::Acquire) >= changes {
            return Some(known);
        }
        let links = links();
        let profile = match links.split_first() {
            None => Some(known),
            Some((first, others)) => {
                let counts: Vec<u64> = others.iter().map(|link| link.lists_changed()).collect();
                let profile = self.relearn_alone(whose, &place, first).await;
                // Mark the changes on the other links as fetched: a session that has such a link can fetch
                // there, and for all others one link is as good as another.
                others.iter().zip(counts).for_each(|(link, count)| link.lists_learned(count));
                profile
            }
        };
        place.looked.store(changes, Ordering::Release);
        profile
    }

    /// Aborts learning tasks that use the scope of this session. Their waiters start again in another scope.
    /// Returns what to wait for.
    pub(crate) fn end(&self, session: SessionId) -> Vec<Arc<Flag>> {
        self.stop(|scope| scope.session() == Some(session))
    }

    /// Aborts all learning tasks and starts no more.
    pub(crate) fn close(&self) -> Vec<Arc<Flag>> {
        self.closed.store(true, Ordering::SeqCst);
        self.stop(|_| true)
    }

    fn stop(&self, which: impl Fn(&Scope) -> bool) -> Vec<Arc<Flag>> {
        let all: Vec<_> = lock(&self.learned).values().cloned().collect();
        all.iter().filter_map(|learned| learned.stop(&which)).collect()
    }
}

impl Asker<'_> {
    async fn identity(self) -> Result<Identity, LinkOpenError> {
        self.links.opener().profile_identity(self.server, self.scope).await
    }
}

/// One attempt to learn a profile.
struct Lesson {
    place: Arc<Learned>,
    attempt: u64,
    links: Links,
    opener: Arc<Opener>,
    server: Server,
    scope: Scope,
    hello: Hello,
    trace: Trace,
}

impl Lesson {
    async fn run(self) {
        let learned = self.learn().await;
        self.place.done(self.attempt, learned);
    }

    async fn learn(&self) -> Result<Profile, LinkOpenError> {
        let server = &self.server;
        let plan = Plan { server, scope: &self.scope, hello: &self.hello };
        let mut first = None;
        let mut ways = ways(server).iter().copied().filter(|way| fits(server, *way)).peekable();
        while let Some(way) = ways.next() {
            let seat = self.seat().await?;
            let timeouts = server.options().timeouts;
            // The last way to try gets the longer timeout, for servers that start slowly.
            let other = way == Way::Modern && ways.peek().is_some();
            let limit = if other { timeouts.probe } else { timeouts.open };
            match self.opener.discover(plan, way, seat, limit).await {
                Ok(link) => {
                    let mut profile = Profile::new(way, link.greeting().clone());
                    profile.learn_lists(&link).await;
                    // Ends the temporary link for good, with its session on the server.
                    link.close(LossReason::Ended);
                    link.gone().await;
                    return Ok(profile);
                }
                // The first refusal is the most informative one.
                Err(Refusal::OtherEra(error)) => {
                    first.get_or_insert(error);
                }
                Err(Refusal::Failed(error)) => return Err(first.unwrap_or(error)),
            }
        }
        Err(first.unwrap_or_else(|| ended(server)))
    }

    async fn seat(&self) -> Result<LinkPermit, LinkOpenError> {
        let cost = Cost { process: self.server.is_process() };
        let permit = self.opener.budget.admit(self.scope.owner(), cost, &self.links).await?;
        Ok(LinkPermit::new(permit, self.trace.clone()))
    }
}

impl Drop for Lesson {
    /// Completes the attempt if the task was aborted or panicked, so that its waiters are woken.
    fn drop(&mut self) {
        self.place.done(self.attempt, Err(ended(&self.server)));
    }
}

/// Transports and eras to try, in order.
///
/// A server that speaks both eras is used as legacy if its state has to be kept, and some servers fix the era
/// with the first message: so the preferred era is tried first. After a refusal the next try gets a new link.
fn ways(server: &Server) -> &'static [Way] {
    match (server.options().era, server.options().isolation) {
        (EraChoice::Legacy, _) => &[Way::Legacy, Way::Sse],
        (EraChoice::Modern, _) => &[Way::Modern],
        (EraChoice::Auto, Some(Isolation::Shared)) => &[Way::Modern, Way::Legacy, Way::Sse],
        (EraChoice::Auto, _) => &[Way::Legacy, Way::Modern, Way::Sse],
    }
}

/// Whether the server is ever used in this way.
pub(crate) fn suits(server: &Server, way: Way) -> bool {
    ways(server).contains(&way) && fits(server, way)
}

fn fits(server: &Server, way: Way) -> bool {
    match way {
        Way::Sse => !server.is_process(),
        Way::Legacy | Way::Modern => !server.is_sse(),
    }
}

fn ended(server: &Server) -> LinkOpenError {
    LinkOpenError::Ended { server: server.name().to_owned() }
}

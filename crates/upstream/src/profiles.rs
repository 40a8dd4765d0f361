//! Learning how servers are spoken to, each once.

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
    Cost, EraChoice, Hello, Identity, Isolation, Link, Links, LossReason, OpenError, Profile,
    Scope, Server, Way,
    flag::{Flag, Trace},
    handshake::Refusal,
    lock::lock,
    opener::{Opener, Plan},
    seat::Seat,
};

/// How long a server may take to tell lists that changed. Others wait for it.
const RELEARNING: Duration = Duration::from_secs(4);

/// How many owners' lists are kept before those that nobody looks at are forgotten.
const OWNERS: usize = 4096;

/// How many kinds of clients one server is asked for. Whoever comes later is told what is known.
const KINDS: usize = 32;

/// The profiles of all servers, by configuration and credentials, and by what is wanted of them: a
/// server that speaks both eras is known in two ways.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    learned: Mutex<HashMap<Identity, Arc<Learned>>>,
    /// What else is known under an identity: the server as clients see it that declare something.
    kinds: Mutex<HashMap<Identity, Vec<Identity>>>,
    /// Lists that changed on links of one owner: what a server has for somebody is for nobody else to see, with the
    /// same credentials, too (E23).
    changed: Mutex<HashMap<Identity, Arc<Learned>>>,
    closed: AtomicBool,
}

/// What is known of a server, and who asks; nobody in particular where all see the same.
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

/// Who asks for a profile, and with whose credentials.
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

    /// Where lists are kept that changed for who asks.
    fn own(&self, whose: Whose<'_>) -> Arc<Learned> {
        let Some(owner) = whose.owner else { return self.place(whose.identity) };
        let mut changed = lock(&self.changed);
        if changed.len() >= OWNERS {
            changed.retain(|_, own| Arc::strong_count(own) > 1);
        }
        changed.entry(whose.identity.seen_by(owner)).or_default().clone()
    }

    /// What is known.
    pub(crate) fn known<'a>(&self, whose: impl Into<Whose<'a>>) -> Option<Arc<Profile>> {
        let Whose { identity, owner } = whose.into();
        let own = owner.and_then(|owner| {
            let changed = lock(&self.changed);
            changed.get(&identity.seen_by(owner)).cloned()
        });
        own.and_then(|own| own.known()).or_else(|| self.place(identity).known())
    }

    /// Whose lists are meant if this owner asks: those of links that all share are everybody's.
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

    /// What was learned elsewhere, or earlier.
    pub(crate) fn set(&self, identity: Identity, profile: Arc<Profile>) {
        self.place(identity).set(profile);
    }

    /// What is known, or else what a link tells that is opened and thrown away. All who ask meanwhile
    /// wait for that one link, which is opened in the name of the first; who is cancelled cancels
    /// nobody else.
    pub(crate) async fn get(&self, asker: Asker<'_>) -> Result<Arc<Profile>, Arc<OpenError>> {
        let identity = asker.identity().await?;
        if let Some(known) = self.known(Whose { identity, owner: asker.scope.owner() }) {
            return Ok(known);
        }
        self.learned(asker, identity, Hello::default()).await
    }

    /// The same as a client sees it: some servers have more tools for those that can be asked
    /// something.
    pub(crate) async fn get_for(
        &self,
        asker: Asker<'_>,
        hello: &Hello,
    ) -> Result<Arc<Profile>, Arc<OpenError>> {
        let identity = asker.identity().await?;
        // On a link that several share nobody can be asked anything.
        let alone = matches!(asker.scope, Scope::Session { .. });
        if !alone || !hello.declares_anything() {
            return self.get(asker).await;
        }
        let kind = identity.declaring(hello.capabilities());
        // Modern servers list the same for everybody.
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

    /// How a server is spoken to: whatever was learned for one client tells it for all.
    pub(crate) async fn spoken(&self, asker: Asker<'_>) -> Result<Arc<Profile>, Arc<OpenError>> {
        let identity = asker.identity().await?;
        match self.any(identity) {
            Some(known) => Ok(known),
            None => self.learned(asker, identity, Hello::default()).await,
        }
    }

    /// Whatever is known, for any client.
    fn any(&self, identity: Identity) -> Option<Arc<Profile>> {
        let kinds = lock(&self.kinds).get(&identity).cloned().unwrap_or_default();
        std::iter::once(identity).chain(kinds).find_map(|one| self.known(one))
    }

    /// Whether one more kind of clients is looked at.
    fn admits(&self, identity: Identity, kind: Identity) -> bool {
        let kinds = lock(&self.kinds);
        kinds.get(&identity).is_none_or(|kinds| kinds.len() < KINDS || kinds.contains(&kind))
    }

    async fn learned(
        &self,
        asker: Asker<'_>,
        identity: Identity,
        hello: Hello,
    ) -> Result<Arc<Profile>, Arc<OpenError>> {
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

    /// Asks for the lists anew, on a link whose server said that they changed, or if one could not be had
    /// before. All who ask meanwhile wait for the same answers.
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
        // Who does not answer is not waited for again before the next change.
        let asked = tokio::time::timeout(RELEARNING, known.relearned(link)).await;
        link.lists_learned(changes);
        let Ok(profile) = asked else { return Some(known) };
        let profile = Arc::new(profile);
        place.set(profile.clone());
        // Other clients may be told something else; they are asked for anew.
        let kinds = lock(&self.kinds).get(&whose.identity).cloned().unwrap_or_default();
        kinds.into_iter().for_each(|kind| self.place(kind).forget());
        Some(profile)
    }

    /// What is known, after it was looked whether a link said that lists changed: `links` gives those, the one
    /// to be asked first. `changes` counts what any link ever said, so that nobody looks in vain.
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
                let seen: Vec<u64> = others.iter().map(|link| link.lists_changed()).collect();
                let profile = self.relearn_alone(whose, &place, first).await;
                // Whoever has one of the others can ask there; to all the rest one is as good as another.
                others.iter().zip(seen).for_each(|(link, seen)| link.lists_learned(seen));
                profile
            }
        };
        place.looked.store(changes, Ordering::Release);
        profile
    }

    /// Gives up what is being learned in the name of a session. Who waits for it begins anew, in
    /// another name. Gives what is to be waited for.
    pub(crate) fn end(&self, session: SessionId) -> Vec<Arc<Flag>> {
        self.stop(|scope| scope.session() == Some(session))
    }

    /// Gives up all that is being learned, and learns nothing more.
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
    async fn identity(self) -> Result<Identity, OpenError> {
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

    async fn learn(&self) -> Result<Profile, OpenError> {
        let server = &self.server;
        let plan = Plan { server, scope: &self.scope, hello: &self.hello };
        let mut first = None;
        let mut ways = ways(server).iter().copied().filter(|way| fits(server, *way)).peekable();
        while let Some(way) = ways.next() {
            let seat = self.seat().await?;
            let timeouts = server.options().timeouts;
            // Where nothing else can be tried, who is slow to start is waited for.
            let other = way == Way::Modern && ways.peek().is_some();
            let limit = if other { timeouts.probe } else { timeouts.open };
            match self.opener.discover(plan, way, seat, limit).await {
                Ok(link) => {
                    let mut profile = Profile::new(way, link.greeting().clone());
                    profile.learn_lists(&link).await;
                    // Thrown away for good: its session on the server, too.
                    link.close(LossReason::Ended);
                    link.gone().await;
                    return Ok(profile);
                }
                // The first refusal is the one that says most.
                Err(Refusal::OtherEra(error)) => {
                    first.get_or_insert(error);
                }
                Err(Refusal::Failed(error)) => return Err(first.unwrap_or(error)),
            }
        }
        Err(first.unwrap_or_else(|| ended(server)))
    }

    async fn seat(&self) -> Result<Seat, OpenError> {
        let cost = Cost { process: self.server.is_process() };
        let permit = self.opener.budget.admit(self.scope.owner(), cost, &self.links).await?;
        Ok(Seat::new(permit, self.trace.clone()))
    }
}

impl Drop for Lesson {
    /// Whatever becomes of the task, nobody waits for it for ever.
    fn drop(&mut self) {
        self.place.done(self.attempt, Err(ended(&self.server)));
    }
}

/// The ways to try, in order.
///
/// A server that speaks both eras is spoken to as legacy when its state is to be kept, and some lock
/// themselves to the era of the first word they hear: so the era that is wanted is tried first. What
/// did not understand the first word gets a fresh link for the second.
fn ways(server: &Server) -> &'static [Way] {
    match (server.options().era, server.options().isolation) {
        (EraChoice::Legacy, _) => &[Way::Legacy, Way::Sse],
        (EraChoice::Modern, _) => &[Way::Modern],
        (EraChoice::Auto, Some(Isolation::Shared)) => &[Way::Modern, Way::Legacy, Way::Sse],
        (EraChoice::Auto, _) => &[Way::Legacy, Way::Modern, Way::Sse],
    }
}

/// Whether a server is ever spoken to in this way.
pub(crate) fn suits(server: &Server, way: Way) -> bool {
    ways(server).contains(&way) && fits(server, way)
}

fn fits(server: &Server, way: Way) -> bool {
    match way {
        Way::Sse => !server.is_process(),
        Way::Legacy | Way::Modern => !server.is_sse(),
    }
}

fn ended(server: &Server) -> OpenError {
    OpenError::Ended { server: server.name().to_owned() }
}

//! Which session has which link.

mod footing;
mod held;
mod open;
mod part;
mod report;
mod retire;
mod slot;
mod spares;
mod table;
mod trouble;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use stayput_core::{Generation, SessionId};
use tokio::{runtime::Handle, task::JoinHandle};

use crate::{
    Budget, Folders, Hello, Keeper, Kept, Limits, Link, LinkKey, LossReason, OpenError, Place,
    Profile, Recycle, Server, Used, Wanted, Way,
    flag::{Flag, Trace},
    opener::{Opener, Plan},
    process::Processes,
    profiles::{self, Asker, Profiles},
};
pub use held::{Held, Spot};
pub use part::Standing;
pub use report::LinkReport;
pub use retire::Retiring;
use slot::{Leaving, Slot};
use spares::Spares;
use table::Table;

/// How often the memory of children is looked at, if there is a limit for it.
const MEASURED_EVERY: Duration = Duration::from_secs(5);

/// How links are made and how many there may be.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// Who starts and ends child processes.
    pub processes: Processes,
    /// Where sessions have their private folders.
    pub folders: Folders,
    /// How many links, processes and bytes of memory there may be.
    pub limits: Limits,
    /// The largest message that is taken from a server.
    pub message_limit: usize,
}

impl LinkSettings {
    /// The usual limits.
    #[must_use]
    pub fn new(processes: Processes, folders: Folders) -> Self {
        let message_limit = stayput_wire::Message::MAX_BYTES;
        Self { processes, folders, limits: Limits::default(), message_limit }
    }
}

/// All links of this process: session and server lead to a link, which is opened by the first who asks
/// and shared by all who ask meanwhile. A clone is the same.
///
/// Nothing runs in the background for an idle link but what its transport needs. Links are opened on
/// the runtime they were made with, not on their callers': who is cancelled cancels nobody else.
#[derive(Clone)]
pub struct Links(Arc<Inner>);

struct Inner {
    opener: Arc<Opener>,
    profiles: Profiles,
    table: Table,
    spares: Spares,
    /// Somebody looks at the memory of children.
    measured: AtomicBool,
    closed: Arc<Flag>,
}

/// What somebody who wants a link brings along.
#[derive(Clone, Debug, Default)]
pub struct Asking {
    /// What the server is told of the client, if the link has to be opened.
    pub hello: Hello,
    /// Who keeps what is needed to come back; without one, it is kept in memory.
    pub keeper: Option<Arc<dyn Keeper>>,
    /// The generation that a first link begins on.
    pub generation: Generation,
}

/// What happened when all links were closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// How many links were live.
    pub links: usize,
    /// How many of them, and of what was being opened, were not gone in time.
    pub left: usize,
}

/// One live link, as an operator sees it.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    /// What it is found by.
    pub key: LinkKey,
    /// Its generation; none while it is being opened.
    pub generation: Option<Generation>,
    /// How many calls are in flight on it.
    pub in_flight: usize,
}

impl Links {
    /// No links so far. They live on `runtime`.
    #[must_use]
    pub fn new(settings: LinkSettings, runtime: Handle) -> Self {
        let LinkSettings { processes, folders, limits, message_limit } = settings;
        let budget = Budget::new(limits);
        let opener = Arc::new(Opener::new(runtime, processes, folders, budget, message_limit));
        let links = Self(Arc::new(Inner {
            opener,
            profiles: Profiles::default(),
            table: Table::default(),
            spares: Spares::default(),
            measured: AtomicBool::new(false),
            closed: Arc::default(),
        }));
        links.watch_memory(limits);
        links
    }

    /// How many there may be from now on. What is too much ends by itself, and nothing comes after it.
    pub fn set_limits(&self, limits: Limits) {
        self.0.opener.budget.set_limits(limits);
        self.watch_memory(limits);
    }

    /// What is known of a server. If nothing is, it is asked on a link that is thrown away; `place`
    /// says with whose credentials.
    ///
    /// # Errors
    /// If the server cannot be asked, or the session ends meanwhile.
    pub async fn profile(
        &self,
        server: &Server,
        place: &Place,
    ) -> Result<Arc<Profile>, Arc<OpenError>> {
        let scope = open::probe_scope(server, place);
        let asker = Asker { links: self, server, scope: &scope };
        self.while_live(server, place, self.0.profiles.get(asker)).await
    }

    /// The same as a client sees it that says this of itself: a server may list more for one that can
    /// be asked something.
    ///
    /// # Errors
    /// If the server cannot be asked.
    pub async fn profile_for(
        &self,
        server: &Server,
        place: &Place,
        hello: &Hello,
    ) -> Result<Arc<Profile>, Arc<OpenError>> {
        let scope = open::probe_scope(server, place);
        let asker = Asker { links: self, server, scope: &scope };
        self.while_live(server, place, self.0.profiles.get_for(asker, hello)).await
    }

    /// How a server is spoken to. Whatever was learned of it for one client tells it for all.
    ///
    /// # Errors
    /// If nothing was, and the server cannot be asked.
    pub async fn way(&self, server: &Server, place: &Place) -> Result<Way, Arc<OpenError>> {
        let scope = open::probe_scope(server, place);
        let asker = Asker { links: self, server, scope: &scope };
        Ok(self.while_live(server, place, self.0.profiles.spoken(asker)).await?.way())
    }

    /// Nothing is learned in the name of a session that is over: it would leave a folder.
    async fn while_live(
        &self,
        server: &Server,
        place: &Place,
        learning: impl Future<Output = Result<Arc<Profile>, Arc<OpenError>>>,
    ) -> Result<Arc<Profile>, Arc<OpenError>> {
        let visit = self.0.table.visit(place.session);
        tokio::select! {
            biased;
            () = visit.over() => Err(Arc::new(open::ended(server))),
            learned = learning => learned,
        }
    }

    pub(crate) fn opener(&self) -> &Arc<Opener> {
        &self.0.opener
    }

    /// What is known of a server, without asking it. Which session it is asked for does not matter.
    pub async fn known_profile(&self, server: &Server, place: &Place) -> Option<Arc<Profile>> {
        let scope = open::probe_scope(server, place);
        let identity = self.0.opener.profile_identity(server, &scope).await.ok()?;
        self.0.profiles.known(self.0.profiles.whose(server, identity, &place.owner))
    }

    /// What is known of a server, its lists as they are now: if it said on any link of this owner that one
    /// changed, it is asked there, once for all who ask. Nothing, if nothing was known before.
    pub async fn current_profile(&self, server: &Server, place: &Place) -> Option<Arc<Profile>> {
        let scope = open::probe_scope(server, place);
        let identity = self.0.opener.profile_identity(server, &scope).await.ok()?;
        let changed = || self.0.table.changed(server, &place.owner);
        let whose = self.0.profiles.whose(server, identity, &place.owner);
        self.0.profiles.current(whose, self.0.opener.lists_changed(), changed).await
    }

    /// What is known of a server after it said, on this link, that its lists changed, or if one of them could
    /// not be had before: they are asked for anew, once for all who ask. Nothing, if nothing was known before.
    pub async fn relearn(
        &self,
        server: &Server,
        place: &Place,
        link: &Link,
    ) -> Option<Arc<Profile>> {
        let scope = open::probe_scope(server, place);
        let identity = self.0.opener.profile_identity(server, &scope).await.ok()?;
        let whose = self.0.profiles.whose(server, identity, &place.owner);
        self.0.profiles.relearn(whose, link).await
    }

    /// Takes over a profile that was learned earlier, unless its era is not the one that is spoken with
    /// the server now.
    pub async fn set_profile(&self, server: &Server, place: &Place, profile: Profile) {
        let scope = open::probe_scope(server, place);
        if profiles::suits(server, profile.way())
            && let Ok(identity) = self.0.opener.profile_identity(server, &scope).await
        {
            self.0.profiles.set(identity, Arc::new(profile));
        }
    }

    /// Keeps processes of this server ready, as its options say. Nothing is sent to them.
    pub fn warm(&self, server: &Server) {
        if !self.is_closed() {
            self.0.spares.want(self, server);
        }
    }

    /// Ends all links of a session, and removes its folders. Says what could not be removed.
    ///
    /// Dropped, it goes on. Whoever opens a link for the session meanwhile waits for it.
    pub async fn end(&self, session: SessionId) -> Kept {
        let (trace, gone) = Trace::new();
        let (slots, earlier) = self.0.table.remove_session(session, gone.clone());
        // What was only let go of is still there, on its server.
        let left: Vec<_> = slots.iter().filter_map(|slot| self.forget(slot)).collect();
        // Told all at once, then waited for.
        let mut ended = leaving(&slots, LossReason::Ended);
        ended.extend(self.0.profiles.end(session).into_iter().map(Leaving::Opening));
        ended.extend(earlier.map(Leaving::Opening));
        let inner = self.0.clone();
        let ending = self.0.opener.runtime.spawn(async move {
            all_gone(&ended).await;
            for farewell in left {
                let _ = farewell.await;
            }
            let kept = inner.opener.folders.remove_session(session).await;
            inner.table.forget_session(session, &gone);
            drop(trace);
            kept
        });
        ending.await.unwrap_or_default()
    }

    /// Lets go of all links of a session that goes on elsewhere: what its servers keep is for whoever
    /// comes back to it. Its folders stay.
    pub async fn release(&self, session: SessionId) {
        let (trace, gone) = Trace::new();
        let (slots, earlier) = self.0.table.remove_session(session, gone.clone());
        let mut ended = leaving(&slots, LossReason::Released);
        ended.extend(earlier.map(Leaving::Opening));
        let inner = self.0.clone();
        let releasing = self.0.opener.runtime.spawn(async move {
            all_gone(&ended).await;
            inner.table.forget_session(session, &gone);
            drop(trace);
        });
        let _ = releasing.await;
    }

    /// Says farewell to a session that a server still keeps, though its link was let go of.
    fn forget(&self, slot: &Slot) -> Option<JoinHandle<()>> {
        let kept = slot.left_behind().filter(|_| slot.server.options().delete_on_end)?;
        let (links, server, scope) = (self.clone(), slot.server.clone(), slot.key.scope().clone());
        Some(self.0.opener.runtime.spawn(async move {
            let hello = Hello::default();
            let plan = Plan { server: &server, scope: &scope, hello: &hello };
            // It is the server's to forget what nobody can tell it to.
            let _ = links.0.opener.forget(plan, &kept).await;
        }))
    }

    /// Ends the link of `place` to `server`, if there is one, for all who share it. The next one begins on
    /// the next generation. A part of a session ends no more than what is its own.
    pub async fn restart(&self, server: &Server, place: &Place, reason: LossReason) {
        let mut slots = self.0.table.of_place(server, place);
        slots.retain(|slot| place.branch == 0 || slot.key.scope().session().is_some());
        let ended: Vec<_> = slots.iter().filter_map(|slot| slot.end(reason, false)).collect();
        all_gone(&ended).await;
    }

    /// Lets go of links that nobody used for `idle`.
    pub fn close_idle(&self, idle: Duration) -> usize {
        let slots = self.0.table.all();
        let old =
            slots.iter().filter(|slot| slot.idle_since().is_some_and(|at| at.elapsed() >= idle));
        old.filter(|slot| slot.recycle()).count()
    }

    /// All links that are live or being opened.
    #[must_use]
    pub fn status(&self) -> Vec<LinkStatus> {
        let slots = self.0.table.all();
        let status = slots.iter().filter_map(|slot| {
            let live = slot.live();
            (live.is_some() || slot.is_opening()).then(|| LinkStatus {
                key: slot.key.clone(),
                generation: live.as_ref().map(|(_, generation)| *generation),
                in_flight: live.map_or(0, |(link, _)| link.in_flight()),
            })
        });
        status.collect()
    }

    /// How many processes are ready for links to come.
    #[must_use]
    pub fn spares(&self) -> usize {
        self.0.spares.ready()
    }

    /// How much of the budget is used.
    #[must_use]
    pub fn used(&self) -> Used {
        self.0.opener.budget.used()
    }

    /// Lets go of all links at once, under one deadline, and opens no more. Dropped, it goes on.
    pub async fn close(&self, limit: Duration) -> Closed {
        self.0.closed.raise();
        let slots = self.0.table.remove_where(|_| true);
        let mut ended = leaving(&slots, LossReason::Released);
        let links = ended.iter().filter(|leaving| leaving.is_link()).count();
        ended.extend(self.0.profiles.close().into_iter().map(Leaving::Opening));
        ended.push(Leaving::Opening(self.0.spares.close()));
        let processes = self.0.opener.processes.clone();
        let closing = self.0.opener.runtime.spawn(async move {
            let _ = tokio::time::timeout(limit, all_gone(&ended)).await;
            let left = ended.iter().filter(|leaving| !leaving.is_gone()).count();
            processes.close().await;
            Closed { links, left }
        });
        closing.await.unwrap_or_default()
    }

    fn is_closed(&self) -> bool {
        self.0.closed.is_raised()
    }

    /// Looks from time to time at the memory that children use, once there is a limit for it. Above that the
    /// budget lets nobody in but for one who goes.
    fn watch_memory(&self, limits: Limits) {
        if limits.memory.is_none() || self.0.measured.swap(true, Ordering::Relaxed) {
            return;
        }
        let (weak, closed) = (Arc::downgrade(&self.0), self.0.closed.clone());
        self.0.opener.runtime.spawn(async move {
            while tokio::time::timeout(MEASURED_EVERY, closed.wait()).await.is_err() {
                let Some(links) = weak.upgrade().map(Links) else { return };
                links.measure().await;
            }
        });
    }

    /// Measures the memory of all children, and tells the budget.
    async fn measure(&self) {
        let links: Vec<Link> =
            self.0.table.all().iter().filter_map(|slot| Some(slot.live()?.0)).collect();
        let sum = move || links.iter().filter_map(|link| link.memory()).sum();
        let Ok(used) = tokio::task::spawn_blocking(sum).await else { return };
        self.0.opener.budget.set_memory(used);
    }
}

/// Ends all of them for good, at once. Gives what is to be waited for.
fn leaving(slots: &[Arc<Slot>], reason: LossReason) -> Vec<Leaving> {
    slots.iter().filter_map(|slot| slot.end(reason, true)).collect()
}

/// All were told at once; so to wait for one after the other takes no longer than the slowest.
async fn all_gone(all: &[Leaving]) {
    for leaving in all {
        leaving.gone().await;
    }
}

impl Recycle for Links {
    fn recycle(&self, wanted: Wanted<'_>) -> bool {
        self.0.spares.give_up_one(wanted) || self.0.table.recycle(wanted)
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Links({:?})", self.used())
    }
}

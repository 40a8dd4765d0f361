//! Which session has which link.

mod open;
mod slot;
mod spares;
mod table;

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
    Profile, Recycle, Server, Used, Wanted,
    opener::{Opener, Plan},
    process::Processes,
    profiles::Profiles,
};
pub use slot::Held;
use slot::Slot;
use spares::Spares;
use table::Table;

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
        let message_limit = stayput_wire::Message::SIZE_LIMIT;
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
    opener: Opener,
    profiles: Profiles,
    table: Table,
    spares: Spares,
    closed: AtomicBool,
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
    /// How many of them were not gone in time.
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
        let opener = Opener::new(runtime, processes, folders, budget, message_limit);
        let links = Self(Arc::new(Inner {
            opener,
            profiles: Profiles::default(),
            table: Table::default(),
            spares: Spares::default(),
            closed: AtomicBool::new(false),
        }));
        if limits.memory.is_some() {
            links.watch_memory();
        }
        links
    }

    /// What is known of a server. If nothing is, it is asked on a link that is thrown away; `place`
    /// says with whose credentials.
    ///
    /// # Errors
    /// If the server cannot be asked.
    pub async fn profile(
        &self,
        server: &Server,
        place: &Place,
    ) -> Result<Arc<Profile>, Arc<OpenError>> {
        let scope = open::probe_scope(server, place);
        let inner = &self.0;
        let profile = inner.profiles.get(&inner.opener, server, &scope, self).await;
        profile.map_err(Arc::new)
    }

    /// Takes over a profile that was learned earlier, unless its era is not the one that is spoken with
    /// the server now.
    pub async fn set_profile(&self, server: &Server, place: &Place, profile: Profile) {
        let scope = open::probe_scope(server, place);
        if let Ok(expansion) = self.0.opener.folders.expansion(server, &scope).await {
            self.0.profiles.set(server, &expansion, profile);
        }
    }

    /// Keeps processes of this server ready, as its options say. Nothing is sent to them.
    pub fn warm(&self, server: &Server) {
        self.0.spares.want(self, server);
    }

    /// Ends all links of a session, and removes its folders. Says what could not be removed.
    pub async fn end(&self, session: SessionId) -> Kept {
        let slots = self.0.table.remove_session(session);
        // Told all at once, then waited for.
        let left = slots.iter().filter_map(|slot| self.forget(slot));
        let left: Vec<_> = left.collect();
        let ended = slots.iter().filter_map(|slot| slot.end(LossReason::Ended, true));
        let ended: Vec<_> = ended.collect();
        all_gone(&ended).await;
        for farewell in left {
            let _ = farewell.await;
        }
        self.0.opener.folders.remove_session(session).await
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

    /// Ends the link of `place` to `server`, if there is one. The next one begins on the next
    /// generation.
    pub async fn restart(&self, server: &Server, place: &Place, reason: LossReason) {
        let slots = self.0.table.of_place(server, place);
        let ended: Vec<_> = slots.iter().filter_map(|slot| slot.end(reason, false)).collect();
        all_gone(&ended).await;
    }

    /// Lets go of every link to a server of this name that is configured otherwise than `server`, or
    /// of all if there is none any more.
    pub async fn reconfigure(&self, name: &str, server: Option<&Server>) {
        let keep = server.map(Server::configuration);
        self.0.spares.drop_all(self, name, keep);
        let slots = self
            .0
            .table
            .remove_where(|key| key.server() == name && Some(key.configuration()) != keep);
        let ended = slots.iter().filter_map(|slot| slot.end(LossReason::Reconfigured, true));
        let ended: Vec<_> = ended.collect();
        all_gone(&ended).await;
    }

    /// Lets go of links that nobody used for `idle`.
    pub fn close_idle(&self, idle: Duration) -> usize {
        let slots = self.0.table.all();
        let old =
            slots.iter().filter(|slot| slot.idle_since().is_some_and(|at| at.elapsed() >= idle));
        old.filter_map(|slot| slot.recycle()).count()
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

    /// How much of the budget is used.
    #[must_use]
    pub fn used(&self) -> Used {
        self.0.opener.budget.used()
    }

    /// Lets go of all links at once, under one deadline, and opens no more.
    pub async fn close(&self, limit: Duration) -> Closed {
        self.0.closed.store(true, Ordering::SeqCst);
        self.0.spares.close(self);
        let slots = self.0.table.remove_where(|_| true);
        let ended = slots.iter().filter_map(|slot| slot.end(LossReason::Released, true));
        let ended: Vec<_> = ended.collect();
        let _ = tokio::time::timeout(limit, all_gone(&ended)).await;
        let left = ended.iter().filter(|link| !link.is_gone()).count();
        self.0.opener.processes.close().await;
        Closed { links: ended.len(), left }
    }

    fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::SeqCst)
    }

    /// Looks from time to time at the memory that children use, and recycles idle ones above the limit.
    fn watch_memory(&self) {
        let weak = Arc::downgrade(&self.0);
        self.0.opener.runtime.spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(5)).await;
                let Some(links) = weak.upgrade().map(Links) else { return };
                if links.is_closed() {
                    return;
                }
                links.measure().await;
            }
        });
    }

    /// Measures the memory of all children, and acts on it.
    async fn measure(&self) {
        let links: Vec<Arc<Link>> =
            self.0.table.all().iter().filter_map(|slot| Some(slot.live()?.0)).collect();
        let sum = move || links.iter().filter_map(|link| link.memory()).sum();
        let Ok(used) = tokio::task::spawn_blocking(sum).await else { return };
        self.0.opener.budget.set_memory(used);
    }
}

/// All were told at once; so to wait for one after the other takes no longer than the slowest.
async fn all_gone(links: &[Arc<Link>]) {
    for link in links {
        link.gone().await;
    }
}

impl Recycle for Links {
    fn recycle(&self, wanted: Wanted<'_>) -> bool {
        self.0.spares.give_up_one(self, wanted) || self.0.table.recycle(wanted)
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Links({:?})", self.used())
    }
}

//! Spare processes, started ahead of use.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::Links;
use crate::{
    Cost, Identity, Resolved, Scope, Server, Wanted,
    budget::link_permit::LinkPermit,
    open::started_child::Started,
    util::{
        flag::{Flag, Trace},
        lock::lock,
    },
};

/// Spare processes of servers, by configuration.
///
/// Nothing is sent to a spare before it is taken. A spare is taken once, for one link. Servers whose command
/// or environment depends on session or owner have none, because a spare is started before its session is
/// known.
#[derive(Debug)]
pub(super) struct Spares {
    stocks: Mutex<HashMap<Identity, Stock>>,
    /// Guard of which every spare holds a clone. `None` after [`Spares::close`].
    trace: Mutex<Option<Trace>>,
    gone: Arc<Flag>,
    /// Whether the maintenance task runs.
    tended: AtomicBool,
}

#[derive(Debug)]
struct Stock {
    server: Server,
    ready: Vec<Spare>,
    /// Cloned by each task that starts a spare; its strong count is the number of starts in progress.
    coming: Arc<()>,
    /// Spares that are being started and have a budget permit.
    arrivals: Vec<Arc<Arrival>>,
}

/// Spare that is being started.
#[derive(Debug)]
struct Arrival {
    /// Budget permit, until the process takes it.
    seat: Mutex<Option<LinkPermit>>,
    /// Set if a link needs the permit.
    unwanted: AtomicBool,
}

impl Arrival {
    /// Ends the spare as soon as it has started. Returns whether this is the first such request.
    fn give_up(&self) -> bool {
        let first = !self.unwanted.swap(true, Ordering::Relaxed);
        if let Some(seat) = &*lock(&self.seat) {
            seat.leaving();
        }
        first
    }
}

/// Process that waits to be used. On drop it is ended in the background.
#[derive(Debug)]
struct Spare {
    started: Started,
    born: Instant,
}

impl Spare {
    fn is_good(&self, server: &Server) -> bool {
        self.started.is_alive() && self.born.elapsed() < server.options().warm.max_age
    }
}

impl Stock {
    fn missing(&self) -> usize {
        let coming = Arc::strong_count(&self.coming) - 1;
        self.server.options().warm.count.saturating_sub(self.ready.len() + coming)
    }

    /// Removes spares that are dead or too old.
    fn take_stale(&mut self) -> Vec<Spare> {
        let Self { server, ready, .. } = self;
        ready.extract_if(.., |spare| !spare.is_good(server)).collect()
    }

    /// Removes one spare, if the owner's limit allows it.
    fn take_for(&mut self, scope: &Scope) -> Option<Started> {
        let spare = self.ready.last_mut()?;
        if let Some((owner, seat)) = scope.owner().zip(spare.started.seat_mut()) {
            // At the owner's own limit, the link has to wait for a permit.
            seat.assign(owner).ok()?;
        }
        self.ready.pop().map(|spare| spare.started)
    }
}

impl Default for Spares {
    fn default() -> Self {
        let (trace, gone) = Trace::new();
        let (stocks, trace) = (Mutex::default(), Mutex::new(Some(trace)));
        Self { stocks, trace, gone, tended: AtomicBool::new(false) }
    }
}

impl Spares {
    /// Keeps spares of this server from now on.
    pub(super) fn want(&self, links: &Links, server: &Server) {
        let depends = server.depends_on_session() || server.depends_on_owner();
        if !server.is_process() || depends || server.options().warm.count == 0 {
            return;
        }
        lock(&self.stocks).entry(server.configuration()).or_insert_with(|| Stock {
            server: server.clone(),
            ready: Vec::new(),
            coming: Arc::default(),
            arrivals: Vec::new(),
        });
        self.refill(links, server.configuration());
        if !self.tended.swap(true, Ordering::Relaxed) {
            let closed = links.0.closed.clone();
            links.0.opener.runtime.spawn(tend(Arc::downgrade(&links.0), closed));
        }
    }

    /// Takes a live spare for a link of `scope`, and starts a replacement.
    pub(super) fn take(&self, links: &Links, server: &Server, scope: &Scope) -> Option<Started> {
        let (taken, stale) = {
            let mut stocks = lock(&self.stocks);
            let stock = stocks.get_mut(&server.configuration())?;
            let stale = stock.take_stale();
            (stock.take_for(scope), stale)
        };
        drop(stale);
        self.refill(links, server.configuration());
        taken
    }

    /// Replaces spares that died or became too old. Returns the time until the next check.
    fn tend(&self, links: &Links) -> Duration {
        let mut again = SLOWEST;
        let (all, stale): (Vec<Identity>, Vec<_>) = {
            let mut stocks = lock(&self.stocks);
            let tended = stocks.iter_mut().map(|(identity, stock)| {
                again = again.min(stock.server.options().warm.max_age / 4);
                (*identity, stock.take_stale())
            });
            tended.unzip()
        };
        drop(stale);
        all.into_iter().for_each(|identity| self.refill(links, identity));
        again.max(QUICKEST)
    }

    /// Starts the missing spares, each in the background.
    fn refill(&self, links: &Links, identity: Identity) {
        let Some(trace) = lock(&self.trace).clone() else { return };
        let coming: Vec<_> = {
            let stocks = lock(&self.stocks);
            let Some(stock) = stocks.get(&identity) else { return };
            (0..stock.missing()).map(|_| stock.coming.clone()).collect()
        };
        for coming in coming {
            let (links, trace) = (Arc::downgrade(&links.0), trace.clone());
            let task = Coming { links, identity, coming, trace };
            if let Some(inner) = task.links.upgrade() {
                inner.opener.runtime.spawn(task.run());
            }
        }
    }

    /// Number of spares that are ready.
    pub(super) fn ready(&self) -> usize {
        lock(&self.stocks).values().map(|stock| stock.ready.len()).sum()
    }

    /// Gives up one spare to free its permit for a link. A spare that is still starting counts too: it has no
    /// user yet, and every link has one.
    pub(super) fn give_up_one(&self, wanted: Wanted<'_>) -> bool {
        if wanted.owner.is_some() {
            return false;
        }
        let mut stocks = lock(&self.stocks);
        let spare = stocks.values_mut().find_map(|stock| stock.ready.pop());
        if spare.is_some() {
            drop(stocks);
            return true;
        }
        stocks.values().flat_map(|stock| &stock.arrivals).any(|arrival| arrival.give_up())
    }

    /// Drops the spares of earlier configurations of a server.
    pub(super) fn drop_all(&self, name: &str, keep: Option<Identity>) {
        let other = |identity: &Identity, stock: &mut Stock| {
            stock.server.name() == name && Some(*identity) != keep
        };
        let old: Vec<_> = lock(&self.stocks).extract_if(other).collect();
        drop(old);
    }

    /// Drops all spares for good. The flag is raised when all are gone.
    pub(super) fn close(&self) -> Arc<Flag> {
        let trace = lock(&self.trace).take();
        let all = std::mem::take(&mut *lock(&self.stocks));
        drop((all, trace));
        self.gone.clone()
    }
}

/// Shortest and longest interval between two checks of the spares.
const QUICKEST: Duration = Duration::from_millis(50);
const SLOWEST: Duration = Duration::from_secs(60);

/// Maintains the spares until the pool is closed.
async fn tend(links: Weak<super::Inner>, closed: Arc<Flag>) {
    while !closed.is_raised() {
        let Some(links) = links.upgrade().map(Links) else { return };
        let pause = links.0.spares.tend(&links);
        drop(links);
        let _ = tokio::time::timeout(pause, closed.wait()).await;
    }
}

/// Task that starts one spare.
struct Coming {
    links: Weak<super::Inner>,
    identity: Identity,
    coming: Arc<()>,
    trace: Trace,
}

impl Coming {
    async fn run(self) {
        let Some(inner) = self.links.upgrade() else { return };
        let Some(arrival) = self.arrive(&inner) else { return };
        drop(inner);
        let started = self.start(&arrival).await;
        let Self { links, identity, coming, .. } = self;
        let Some(inner) = links.upgrade() else { return };
        // Skip a stock of the same configuration that was created meanwhile: it starts its own spares.
        if let Some(stock) = lock(&inner.spares.stocks).get_mut(&identity)
            && Arc::ptr_eq(&stock.coming, &coming)
        {
            stock.arrivals.retain(|other| !Arc::ptr_eq(other, &arrival));
            let wanted = !arrival.unwanted.load(Ordering::Relaxed);
            if let Some(started) = started.filter(|_| wanted) {
                stock.ready.push(Spare { started, born: Instant::now() });
            }
            // Under the same lock as the push, so that the spare is never counted twice.
            drop(coming);
        }
        // A request that waits for a permit may get it now.
        inner.opener.budget.idle();
    }

    /// Takes a budget permit, if one is free.
    fn arrive(&self, inner: &super::Inner) -> Option<Arc<Arrival>> {
        let permit = inner.opener.budget.try_admit(None, Cost { process: true })?;
        let seat = Mutex::new(Some(LinkPermit::new(permit, self.trace.clone())));
        let arrival = Arc::new(Arrival { seat, unwanted: AtomicBool::new(false) });
        let mut stocks = lock(&inner.spares.stocks);
        let stock = stocks.get_mut(&self.identity)?;
        if !Arc::ptr_eq(&stock.coming, &self.coming) {
            return None;
        }
        stock.arrivals.push(arrival.clone());
        Some(arrival)
    }

    async fn start(&self, arrival: &Arc<Arrival>) -> Option<Started> {
        let inner = self.links.upgrade()?;
        let server = lock(&inner.spares.stocks).get(&self.identity)?.server.clone();
        let expansion = inner.opener.folders.expansion(&server, &Scope::Shared).await.ok()?;
        let Ok(Resolved::Stdio(launch)) = server.resolve(&expansion) else { return None };
        let arrival = arrival.clone();
        inner.opener.start(&server, &launch, move || lock(&arrival.seat).take()).await.ok()
    }
}

//! Spare processes, started ahead of use.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use stayput_process::MemoryMeter;
use stayput_sync::Mutex;

use super::Links;
use crate::{
    Cost, Expansion, Identity, LinkOpenError, RecycleFilter, ResolvedTransport, Scope, Server,
    budget::link_permit::LinkPermit,
    open::started_child::StartedChild,
    session_dirs::SpareDir,
    util::flag::{CompletionGuard, Flag},
};

/// Name and configuration of a server with spares.
type SpareKey = (Arc<str>, Identity);

/// Spare processes of servers, by name and configuration.
///
/// Nothing is sent to a spare before it is taken. A spare is taken once, for one link. Servers whose command
/// or environment depends on session or owner have none, because a spare is started before its session is
/// known; only a session directory can be made in advance.
#[derive(Debug)]
pub(super) struct Spares {
    stocks: Mutex<HashMap<SpareKey, SpareSet>>,
    /// Guard of which every spare holds a clone. `None` after [`Spares::close`].
    completion: Mutex<Option<CompletionGuard>>,
    gone: Arc<Flag>,
    /// Whether the maintenance task runs.
    tended: AtomicBool,
}

#[derive(Debug)]
struct SpareSet {
    server: Server,
    ready: Vec<Spare>,
    /// Number of spares that are being started.
    starting: Arc<AtomicUsize>,
    /// Spares that are being started and have a budget permit.
    arrivals: Vec<Arc<StartingSpare>>,
}

/// Spare that is being started.
#[derive(Debug)]
struct StartingSpare {
    /// Budget permit, until the process takes it.
    permit: Mutex<Option<LinkPermit>>,
    /// Whether a link needs the permit.
    unwanted: AtomicBool,
}

impl StartingSpare {
    /// Ends the spare as soon as it has started. Returns whether this is the first such request.
    fn give_up(&self) -> bool {
        let first = !self.unwanted.swap(true, Ordering::Relaxed);
        if let Some(permit) = &*self.permit.lock() {
            permit.leaving();
        }
        first
    }
}

/// Process that waits to be used. On drop it is ended in the background.
#[derive(Debug)]
struct Spare {
    started: StartedChild,
    born: Instant,
}

impl Spare {
    fn is_good(&self, server: &Server) -> bool {
        self.started.is_alive() && self.born.elapsed() < server.options().warm.max_age
    }
}

/// Report about a process that was started before a session needed it.
#[derive(Clone, Debug)]
pub struct SpareReport {
    /// Name of the server.
    pub server: Arc<str>,
    /// Pid of the process.
    pub pid: Option<u32>,
    /// Time since its start.
    pub age: Duration,
    pub(super) meter: Option<MemoryMeter>,
}

impl SpareReport {
    /// Memory of the process and its descendants, in bytes. Blocks: it reads many small files.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.meter.as_ref()?.read()
    }
}

/// Start of a spare that its set counts, until it is dropped.
struct CountedStart(Arc<AtomicUsize>);

impl CountedStart {
    fn new(starting: &Arc<AtomicUsize>) -> Self {
        starting.fetch_add(1, Ordering::Relaxed);
        Self(starting.clone())
    }

    fn is_of(&self, stock: &SpareSet) -> bool {
        Arc::ptr_eq(&self.0, &stock.starting)
    }
}

impl Drop for CountedStart {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SpareSet {
    fn new(server: &Server) -> Self {
        Self {
            server: server.clone(),
            ready: Vec::new(),
            starting: Arc::default(),
            arrivals: Vec::new(),
        }
    }

    /// Number of spares that the options of the server ask for.
    fn wanted(&self) -> usize {
        self.server.options().warm.count
    }

    fn missing(&self) -> usize {
        self.wanted().saturating_sub(self.ready.len() + self.starting.load(Ordering::Relaxed))
    }

    /// Removes spares that are dead or too old.
    fn take_stale(&mut self) -> Vec<Spare> {
        let Self { server, ready, .. } = self;
        ready.extract_if(.., |spare| !spare.is_good(server)).collect()
    }

    /// Removes one spare, if the owner's limit allows it.
    fn take_for(&mut self, scope: &Scope) -> Option<StartedChild> {
        let spare = self.ready.last_mut()?;
        if let Some((owner, permit)) = scope.owner().zip(spare.started.permit_mut()) {
            // At the owner's own limit, the link has to wait for a permit.
            permit.assign(Some(owner)).ok()?;
        }
        self.ready.pop().map(|spare| spare.started)
    }
}

impl Default for Spares {
    fn default() -> Self {
        let (completion, gone) = CompletionGuard::new();
        let (stocks, completion) = (Mutex::default(), Mutex::new(Some(completion)));
        Self { stocks, completion, gone, tended: AtomicBool::new(false) }
    }
}

impl Spares {
    /// Keeps as many spares of this server as its options say, from now on.
    pub(super) fn want(&self, links: &Links, server: &Server) {
        let key = key_of(server);
        // Ended after the lock is released.
        let _surplus: Vec<Spare> = {
            let mut stocks = self.stocks.lock();
            if server.options().warm.count == 0 {
                let stopped = stocks.remove(&key);
                drop(stocks);
                drop(stopped);
                return;
            }
            let stock = stocks.entry(key.clone()).or_insert_with(|| SpareSet::new(server));
            stock.server = server.clone();
            let count = stock.wanted().min(stock.ready.len());
            stock.ready.drain(count..).collect()
        };
        self.refill(links, &key);
        if !self.tended.swap(true, Ordering::Relaxed) {
            let closed = links.0.closed.clone();
            links.0.opener.runtime.spawn(maintain(Arc::downgrade(&links.0), closed));
        }
    }

    /// Takes a live spare for a link of `scope`, and starts a replacement.
    pub(super) fn take(
        &self,
        links: &Links,
        server: &Server,
        scope: &Scope,
    ) -> Option<StartedChild> {
        let (taken, stale) = {
            let mut stocks = self.stocks.lock();
            let stock = stocks.get_mut(&key_of(server))?;
            let stale = stock.take_stale();
            (stock.take_for(scope), stale)
        };
        drop(stale);
        self.refill(links, &key_of(server));
        taken
    }

    /// Replaces spares that died or became too old. Returns the time until the next check.
    fn maintain(&self, links: &Links) -> Duration {
        let mut again = MAX_CHECK_INTERVAL;
        let (all, stale): (Vec<SpareKey>, Vec<_>) = {
            let mut stocks = self.stocks.lock();
            let tended = stocks.iter_mut().map(|(key, stock)| {
                again = again.min(stock.server.options().warm.max_age / 4);
                (key.clone(), stock.take_stale())
            });
            tended.unzip()
        };
        drop(stale);
        all.iter().for_each(|key| self.refill(links, key));
        again.max(MIN_CHECK_INTERVAL)
    }

    /// Starts the missing spares, each in the background.
    fn refill(&self, links: &Links, key: &SpareKey) {
        let Some(completion) = self.completion.lock().clone() else { return };
        let starts: Vec<_> = {
            let stocks = self.stocks.lock();
            let Some(stock) = stocks.get(key) else { return };
            (0..stock.missing()).map(|_| CountedStart::new(&stock.starting)).collect()
        };
        for counted in starts {
            let (links, completion) = (Arc::downgrade(&links.0), completion.clone());
            let task = SpareStart { links, key: key.clone(), counted, completion };
            if let Some(inner) = task.links.upgrade() {
                inner.opener.runtime.spawn(task.run());
            }
        }
    }

    /// Reports the spares that are ready.
    pub(super) fn report(&self) -> Vec<SpareReport> {
        let stocks = self.stocks.lock();
        let all = stocks.values().flat_map(|stock| stock.ready.iter().map(move |it| (stock, it)));
        let all = all.filter(|(_, spare)| spare.started.is_alive());
        let report = |(stock, spare): (&SpareSet, &Spare)| SpareReport {
            server: stock.server.shared_name(),
            pid: spare.started.pid(),
            age: spare.born.elapsed(),
            meter: spare.started.memory_meter(),
        };
        all.map(report).collect()
    }

    /// Gives up one spare to free its permit for a link. A spare that is still starting counts too: it has no
    /// user yet, and every link has one.
    pub(super) fn give_up_one(&self, wanted: RecycleFilter<'_>) -> bool {
        if wanted.owner.is_some() {
            return false;
        }
        let mut stocks = self.stocks.lock();
        let spare = stocks.values_mut().find_map(|stock| stock.ready.pop());
        if spare.is_some() {
            drop(stocks);
            return true;
        }
        stocks.values().flat_map(|stock| &stock.arrivals).any(|arrival| arrival.give_up())
    }

    /// Drops the spares of earlier configurations of a server.
    pub(super) fn drop_all(&self, name: &str, keep: Option<Identity>) {
        let other = |(server, identity): &SpareKey, _: &mut SpareSet| {
            **server == *name && Some(*identity) != keep
        };
        let old: Vec<_> = self.stocks.lock().extract_if(other).collect();
        drop(old);
    }

    /// Drops all spares for good. The flag is raised when all are gone.
    pub(super) fn close(&self) -> Arc<Flag> {
        let completion = self.completion.lock().take();
        let all = std::mem::take(&mut *self.stocks.lock());
        drop((all, completion));
        self.gone.clone()
    }
}

/// Shortest and longest interval between two checks of the spares.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(50);
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Maintains the spares until the pool is closed.
async fn maintain(links: Weak<super::Inner>, closed: Arc<Flag>) {
    while !closed.is_raised() {
        let Some(links) = links.upgrade().map(Links) else { return };
        let pause = links.0.spares.maintain(&links);
        drop(links);
        let _ = tokio::time::timeout(pause, closed.wait()).await;
    }
}

fn key_of(server: &Server) -> SpareKey {
    (server.shared_name(), server.configuration())
}

/// Task that starts one spare.
struct SpareStart {
    links: Weak<super::Inner>,
    key: SpareKey,
    counted: CountedStart,
    completion: CompletionGuard,
}

impl SpareStart {
    async fn run(self) {
        let Some(inner) = self.links.upgrade() else { return };
        let Some(arrival) = self.arrive(&inner) else { return };
        drop(inner);
        let started = self.start(&arrival).await;
        let Self { links, key, counted, .. } = self;
        let Some(inner) = links.upgrade() else { return };
        if let Err(error) = &started
            && error.is_of_server()
            && !inner.closed.is_raised()
        {
            tracing::warn!(server = &*key.0, error = error.brief(), "spare process not started");
        }
        // Skip a stock of the same configuration that was created meanwhile: it starts its own spares.
        if let Some(stock) = inner.spares.stocks.lock().get_mut(&key)
            && counted.is_of(stock)
        {
            stock.arrivals.retain(|other| !Arc::ptr_eq(other, &arrival));
            let wanted =
                !arrival.unwanted.load(Ordering::Relaxed) && stock.ready.len() < stock.wanted();
            if let Some(started) = started.ok().filter(|_| wanted) {
                stock.ready.push(Spare { started, born: Instant::now() });
            }
            // Under the same lock as the push, so that the spare is never counted twice.
            drop(counted);
        }
        // A request that waits for a permit may get it now.
        inner.opener.budget.idle();
    }

    /// Takes a budget permit, if one is free.
    fn arrive(&self, inner: &super::Inner) -> Option<Arc<StartingSpare>> {
        let permit = inner.opener.budget.try_admit(None, Cost { process: true })?;
        let permit = Mutex::new(Some(LinkPermit::new(permit, self.completion.clone())));
        let arrival = Arc::new(StartingSpare { permit, unwanted: AtomicBool::new(false) });
        let mut stocks = inner.spares.stocks.lock();
        let stock = stocks.get_mut(&self.key)?;
        if !self.counted.is_of(stock) {
            return None;
        }
        stock.arrivals.push(arrival.clone());
        Some(arrival)
    }

    async fn start(&self, arrival: &Arc<StartingSpare>) -> Result<StartedChild, LinkOpenError> {
        let closed = || LinkOpenError::Ended { server: self.key.0.to_string() };
        let inner = self.links.upgrade().ok_or_else(closed)?;
        let server = inner.spares.stocks.lock().get(&self.key).map(|stock| stock.server.clone());
        let server = server.ok_or_else(closed)?;
        let dir = spare_dir(&inner, &server).await?;
        let mut expansion = Expansion::new(&Scope::Shared);
        if let Some(dir) = &dir {
            expansion = expansion.with_session_dir(dir.path().to_owned());
        }
        let ResolvedTransport::Stdio(launch) = server.resolve(&expansion)? else {
            return Err(closed());
        };
        let arrival = arrival.clone();
        let started =
            inner.opener.start(&server, &launch, move || arrival.permit.lock().take()).await?;
        Ok(started.with_dir(dir))
    }
}

/// Creates the directory of a spare, if its server uses one.
async fn spare_dir(
    inner: &super::Inner,
    server: &Server,
) -> Result<Option<SpareDir>, LinkOpenError> {
    if !server.uses_session_dir() {
        return Ok(None);
    }
    let (folders, of) = (inner.opener.folders.clone(), server.clone());
    let created = tokio::task::spawn_blocking(move || folders.spare_dir(of.name())).await;
    let ended = |_| LinkOpenError::Ended { server: server.name().to_owned() };
    Ok(Some(created.map_err(ended)??))
}

//! A hub, kept for as long as anything in Python leads to it.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use pyo3::{prelude::*, pyfunction};
use stayput::{Error, Hub, by_hand};
use tokio::{runtime::Handle, sync::watch};

use crate::{error::raised, message::Caller};

/// Something that belongs to the process in which it was made. In a fork it is inert: it is not used, and dropping
/// it does nothing, because the thread it speaks to is not there and may have left any lock closed.
#[derive(Debug)]
pub(crate) struct Here<T> {
    value: Option<T>,
    process: u32,
}

impl<T> Here<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: std::process::id() }
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    pub(crate) fn get(&self) -> Result<&T, Error> {
        self.value.as_ref().filter(|_| self.is_here()).ok_or(Error::Forked)
    }

    pub(crate) fn into_inner(mut self) -> Result<T, Error> {
        if !self.is_here() {
            return Err(Error::Forked);
        }
        self.value.take().ok_or(Error::Forked)
    }
}

impl<T> Drop for Here<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            mem::forget(self.value.take());
        }
    }
}

/// Makes hubs apart.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A hub, and what all that leads to it shares.
pub(crate) struct Keep {
    pub(crate) id: u64,
    hub: Option<Here<Hub>>,
    pub(crate) runtime: Handle,
    /// Whether it was closed.
    pub(crate) over: watch::Sender<bool>,
    /// Who answers what a server asks outside any call.
    pub(crate) last: Last,
}

/// The last caller that answers questions.
pub(crate) type Last = Arc<Mutex<Option<Caller>>>;

impl Keep {
    /// A number that no other hub has.
    pub(crate) fn number() -> u64 {
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn new(id: u64, hub: Hub, last: Last) -> Arc<Self> {
        let runtime = by_hand::runtime(&hub);
        let (hub, over) = (Some(Here::new(hub)), watch::Sender::new(false));
        let keep = Arc::new(Self { id, hub, runtime, over, last });
        let mut alive = lock(&ALIVE);
        alive.retain(|one| one.strong_count() > 0);
        alive.push(Arc::downgrade(&keep));
        keep
    }

    /// Closes it, if it is of this process. Whatever becomes of that, `tell` is dropped.
    fn close(&self, limit: Duration, tell: mpsc::Sender<()>) {
        if let Some(Ok(hub)) = self.hub.as_ref().map(Here::get) {
            let hub = hub.clone();
            self.runtime.spawn(async move {
                hub.close(limit).await;
                drop(tell);
            });
        }
    }

    /// Refuses what is of another process.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.hub.as_ref().map_or(Err(Error::Closed), |hub| hub.get().map(drop))
    }
}

/// All hubs of this process.
static ALIVE: Mutex<Vec<Weak<Keep>>> = Mutex::new(Vec::new());

/// Those who let go of hubs that nobody closed.
static LEAVING: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

impl Drop for Keep {
    /// Whoever drops the last of it may be an event loop or the garbage collector, and to let go takes time.
    fn drop(&mut self) {
        let Some(hub) = self.hub.take().filter(Here::is_here) else { return };
        let leaving = thread::Builder::new().name("stayput-farewell".to_owned());
        if let Ok(leaving) = leaving.spawn(move || drop(hub)) {
            let mut all = lock(&LEAVING);
            all.retain(|one| !one.is_finished());
            all.push(leaving);
        }
    }
}

/// Closes all hubs, and waits until they and those that were let go of are gone, for at most `limit` seconds. For the
/// end of the interpreter.
#[pyfunction]
pub(crate) fn farewell(py: Python<'_>, limit: f64) -> PyResult<()> {
    let limit = seconds(limit)?;
    py.detach(|| {
        let (tell, told) = mpsc::channel::<()>();
        for hub in mem::take(&mut *lock(&ALIVE)).iter().filter_map(Weak::upgrade) {
            hub.close(limit, tell.clone());
        }
        let leaving = mem::take(&mut *lock(&LEAVING));
        let waiting = thread::Builder::new().name("stayput-farewell".to_owned());
        let _ = waiting.spawn(move || {
            for one in leaving {
                let _ = one.join();
            }
            drop(tell);
        });
        // Nobody says anything: it is over when all are gone.
        let _ = told.recv_timeout(limit);
    });
    Ok(())
}

/// A time that was written in Python.
pub(crate) fn seconds(number: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(number).map_err(|_| {
        let sentence = format!("{number} is no number of seconds that can be waited for");
        raised(&Error::Invalid(sentence))
    })
}

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

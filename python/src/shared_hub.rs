//! Hub that all Python objects of it share, and its end.

use std::{
    mem,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use pyo3::{prelude::*, pyfunction};
use stayput::{Error, Hub, SessionIdKeeper, ffi};
use stayput_sync::Mutex;
use tokio::{runtime::Handle, sync::watch};

use crate::{
    callback_channel::{CallbackReceiver, CallbackSender},
    error::to_exception,
    keeper::PythonKeeper,
    message::FallbackCaller,
};

/// Value that belongs to the process that created it. A forked child neither uses nor drops it, because the hub's
/// thread does not exist there and may have left any lock held.
#[derive(Debug)]
pub(crate) struct ProcessLocal<T> {
    value: Option<T>,
    process: u32,
}

impl<T> ProcessLocal<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: std::process::id() }
    }

    fn is_own_process(&self) -> bool {
        self.process == std::process::id()
    }

    pub(crate) fn get(&self) -> Result<&T, Error> {
        self.value.as_ref().filter(|_| self.is_own_process()).ok_or(Error::HubForked)
    }

    pub(crate) fn into_inner(mut self) -> Result<T, Error> {
        if !self.is_own_process() {
            return Err(Error::HubForked);
        }
        self.value.take().ok_or(Error::HubForked)
    }
}

impl<T> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        if !self.is_own_process() {
            mem::forget(self.value.take());
        }
    }
}

/// Id of the next hub.
static NEXT_HUB_ID: AtomicU64 = AtomicU64::new(1);

/// A hub and the state that its agents, sessions and scopes share.
pub(crate) struct SharedHub {
    pub(crate) id: u64,
    hub: Option<ProcessLocal<Hub>>,
    pub(crate) runtime: Handle,
    /// Becomes true when the hub is closed.
    pub(crate) closed: watch::Sender<bool>,
    /// Receives the requests that servers send outside of calls.
    pub(crate) fallback: FallbackCaller,
    /// Sender of requests to run callbacks.
    pub(crate) callback_sender: CallbackSender,
    /// Requests to run callbacks, until a thread of Python takes them.
    pub(crate) callbacks: Mutex<Option<CallbackReceiver>>,
}

impl SharedHub {
    /// Returns an id that no other hub has.
    pub(crate) fn next_id() -> u64 {
        NEXT_HUB_ID.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn new(
        id: u64,
        hub: Hub,
        fallback: FallbackCaller,
        (callback_sender, receiver): (CallbackSender, CallbackReceiver),
    ) -> Arc<Self> {
        let runtime = ffi::runtime(&hub);
        let (hub, closed) = (Some(ProcessLocal::new(hub)), watch::Sender::new(false));
        let callbacks = Mutex::new(Some(receiver));
        let shared =
            Arc::new(Self { id, hub, runtime, closed, fallback, callback_sender, callbacks });
        let mut alive = LIVE_HUBS.lock();
        alive.retain(|one| one.strong_count() > 0);
        alive.push(Arc::downgrade(&shared));
        shared
    }

    /// Creates the keeper of session ids that has this number in Python.
    pub(crate) fn keeper(&self, number: u64) -> Arc<dyn SessionIdKeeper> {
        Arc::new(PythonKeeper { number, sender: self.callback_sender.clone() })
    }

    /// Closes the hub if it belongs to this process. Drops `done` at the end, in any case.
    fn close(&self, limit: Duration, done: mpsc::Sender<()>) {
        if let Some(Ok(hub)) = self.hub.as_ref().map(ProcessLocal::get) {
            let hub = hub.clone();
            self.runtime.spawn(async move {
                hub.close(limit).await;
                drop(done);
            });
        }
    }

    /// Refuses a hub of another process.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.hub.as_ref().map_or(Err(Error::HubClosed), |hub| hub.get().map(drop))
    }
}

/// Hubs of this process.
static LIVE_HUBS: Mutex<Vec<Weak<SharedHub>>> = Mutex::new(Vec::new());

/// Threads that close hubs which were dropped without `close`.
static CLOSING_THREADS: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

impl Drop for SharedHub {
    /// Closes the hub on a new thread: closing takes time, and this may run in an event loop or in the garbage
    /// collector.
    fn drop(&mut self) {
        let Some(hub) = self.hub.take().filter(ProcessLocal::is_own_process) else { return };
        let thread = thread::Builder::new().name("stayput-close".to_owned());
        if let Ok(thread) = thread.spawn(move || drop(hub)) {
            let mut threads = CLOSING_THREADS.lock();
            threads.retain(|other| !other.is_finished());
            threads.push(thread);
        }
    }
}

/// Closes all hubs and waits, for at most `limit` seconds, until they and all dropped hubs are closed. Called at the
/// end of the interpreter.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>, limit: f64) -> PyResult<()> {
    let limit = seconds(limit)?;
    py.detach(|| {
        let (done, all_done) = mpsc::channel::<()>();
        for hub in mem::take(&mut *LIVE_HUBS.lock()).iter().filter_map(Weak::upgrade) {
            hub.close(limit, done.clone());
        }
        let threads = mem::take(&mut *CLOSING_THREADS.lock());
        let waiter = thread::Builder::new().name("stayput-close".to_owned());
        let _ = waiter.spawn(move || {
            for thread in threads {
                let _ = thread.join();
            }
            drop(done);
        });
        // No message is sent: the channel disconnects when all senders are dropped.
        let _ = all_done.recv_timeout(limit);
    });
    Ok(())
}

/// Converts seconds of Python to a duration.
pub(crate) fn seconds(number: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(number).map_err(|_| {
        let message = format!("{number} is not a valid number of seconds");
        to_exception(&Error::InvalidInput(message))
    })
}

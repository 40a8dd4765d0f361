//! Store that fails or waits on request, and records its calls.

use std::{
    fmt,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use stayput_core::{
    Agent, Connection, ExpectedRevision, ExpectedValue, Generation, HandleHash, Holder, Key, Lease,
    Owner, Record, Revision, SessionId, StateKey, StateValue, StateWrite, Store, StoreError,
    Timestamp,
};
use tokio::sync::Semaphore;

/// Wrapper of another store, with faults that a test switches on and off.
pub struct Faulty {
    inner: Arc<dyn Store>,
    failing: AtomicBool,
    hanging: AtomicBool,
    losing: AtomicBool,
    steps: Semaphore,
    asked: Mutex<Vec<&'static str>>,
}

impl Faulty {
    /// Wraps the store `inner`, without faults at first.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            failing: AtomicBool::new(false),
            hanging: AtomicBool::new(false),
            losing: AtomicBool::new(false),
            steps: Semaphore::new(0),
            asked: Mutex::default(),
        }
    }

    /// Returns the operations since the last call of this function, in order.
    pub fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// Makes every operation fail with [`StoreError::Unavailable`], or work again.
    pub fn fail(&self, failing: bool) {
        self.failing.store(failing, Ordering::SeqCst);
    }

    /// Performs the next operation, but answers [`StoreError::Unavailable`].
    pub fn lose_the_next_answer(&self) {
        self.losing.store(true, Ordering::SeqCst);
    }

    /// Makes every operation wait for [`Faulty::step`] before and after its work, or run freely.
    pub fn hang(&self, hanging: bool) {
        self.hanging.store(hanging, Ordering::SeqCst);
        self.steps.forget_permits(usize::MAX >> 4);
    }

    /// Ends one wait.
    pub fn step(&self) {
        self.steps.add_permits(1);
    }

    /// Lets `work` run for this many steps and then drops it. Returns its output if it completed.
    pub async fn cut<T>(&self, steps: usize, work: impl Future<Output = T>) -> Option<T> {
        self.hang(true);
        let mut done = None;
        {
            let mut work = pin!(work);
            for _ in 0..steps {
                self.step();
                let once = poll_fn(|context| Poll::Ready(work.as_mut().poll(context)));
                if let Poll::Ready(it) = once.await {
                    done = Some(it);
                    break;
                }
            }
        }
        self.hang(false);
        done
    }

    /// Yields always, because a real store lets other tasks run while it works.
    async fn pass(&self) {
        tokio::task::yield_now().await;
        if self.hanging.load(Ordering::SeqCst) {
            self.steps.acquire().await.unwrap().forget();
        }
    }

    async fn through<T>(
        &self,
        verb: &'static str,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.asked.lock().unwrap().push(verb);
        if self.failing.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        self.pass().await;
        let result = work.await;
        self.pass().await;
        if self.losing.swap(false, Ordering::SeqCst) { Err(unavailable()) } else { result }
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable { store: "faulty", source: "told to fail".into() }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({:?})", self.inner)
    }
}

/// Implements every operation with the same wrapper.
macro_rules! verbs {
    ($($verb:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for Faulty {
            $(
                async fn $verb(&self, $($argument: $type),*) -> Result<$answer, StoreError> {
                    self.through(stringify!($verb), self.inner.$verb($($argument),*)).await
                }
            )*
        }
    };
}

verbs! {
    insert(record: &Record, connection: Option<&Connection>) -> Generation;
    load(id: SessionId) -> Option<Record>;
    find_by_key(owner: &Owner, agent: &Agent, key: &Key) -> Option<Record>;
    replace(record: &Record, expected: ExpectedRevision, by: Option<Lease>) -> Revision;
    touch(used: &[(SessionId, Timestamp)], by: Option<Lease>) -> u64;
    remove(id: SessionId, by: Option<Lease>) -> ();
    list(owner: Option<&Owner>, after: Option<SessionId>, limit: usize) -> Vec<Record>;
    list_due(now: Timestamp, after: Option<(Timestamp, SessionId)>, limit: usize) -> Vec<Record>;
    purge(ended_before: Timestamp, limit: usize) -> u64;
    add_handle(id: SessionId, hash: HandleHash, by: Option<Lease>) -> ();
    find_by_handle(hash: HandleHash) -> Option<Record>;
    put_connection(connection: &Connection, stale_before: Timestamp, by: Option<Lease>) -> ();
    load_connection(name: HandleHash) -> Option<Connection>;
    touch_connections(used: &[(HandleHash, Timestamp)], by: Option<Lease>) -> u64;
    remove_connection(name: HandleHash, by: Option<Lease>) -> ();
    load_state(id: SessionId, key: &str) -> Option<StateValue>;
    list_state_keys(id: SessionId) -> Vec<StateKey>;
    put_state(id: SessionId, write: StateWrite<'_>, by: Option<Lease>) -> Revision;
    remove_state(id: SessionId, key: &str, expected: ExpectedValue, by: Option<Lease>) -> ();
    acquire_lease(holder: &Holder, ttl: Duration) -> Lease;
    renew_lease(lease: Lease, ttl: Duration) -> ();
    release_lease(lease: Lease) -> ();
    lease_holder(lease: Lease) -> Option<Holder>;
    claim(id: SessionId, lease: Lease) -> Record;
    release_claim(id: SessionId, lease: Lease) -> ();
}

//! Connection pool: idle HTTP connections, kept for the next request.

use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::{
        Arc, MutexGuard, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use rustc_hash::FxBuildHasher;
use rustix::{io::Errno, net::RecvFlags};
use stayput_sync::Mutex;
use tokio::{
    io::{AsyncRead as _, ReadBuf},
    net::TcpStream,
    runtime::Handle,
    task::AbortHandle,
    time::Instant,
};

use crate::{ClientSettings, Target, Worker};

/// Idle connections by origin. A connection is closed when the server closes it, or when it was idle for a
/// while.
pub(super) struct IdlePool {
    runtime: Handle,
    idle: Duration,
    max_idle: usize,
    /// Connections per worker: events of a connection arrive on the thread that opened it.
    shards: [Mutex<Shard>; SHARDS],
}

/// Number of shards. If there are more workers, they share shards.
const SHARDS: usize = 32;

#[derive(Default)]
struct Shard {
    origins: HashMap<Box<str>, OriginPool, FxBuildHasher>,
    /// Task that closes connections that were idle for too long, while there are any.
    sweeper: Option<AbortHandle>,
}

/// Idle connection.
struct Idle {
    tcp: TcpStream,
    since: Instant,
}

/// Idle connections of one origin, the most recently used one at the end.
struct OriginPool {
    idle: Vec<Idle>,
    /// Woken when one of the connections is closed.
    close_waker: Waker,
    /// Callers that found no connection. The first caller gets the next connection.
    waiting: VecDeque<Arc<Waiter>>,
}

impl OriginPool {
    fn is_needed(&self) -> bool {
        !self.idle.is_empty() || !self.waiting.is_empty()
    }

    /// Gives the connection to the first caller that waits. Returns it if none does.
    fn give_to_waiter(&mut self, tcp: TcpStream) -> Option<TcpStream> {
        while let Some(waiter) = self.waiting.pop_front() {
            let mut state = waiter.0.lock();
            if let WaitState::Open(waker) = &mut *state {
                let waker = waker.take();
                *state = WaitState::Given(tcp);
                drop(state);
                waker.inspect(Waker::wake_by_ref);
                return None;
            }
        }
        Some(tcp)
    }
}

impl IdlePool {
    pub(super) fn new(settings: &ClientSettings, runtime: Handle) -> Arc<Self> {
        let (idle, max_idle) = (settings.idle, settings.max_idle);
        Arc::new(Self { runtime, idle, max_idle, shards: Default::default() })
    }

    /// Returns an empty set with the same settings.
    pub(super) fn with_own_pool(&self) -> Arc<Self> {
        let (runtime, idle, max_idle) = (self.runtime.clone(), self.idle, self.max_idle);
        Arc::new(Self { runtime, idle, max_idle, shards: Default::default() })
    }

    /// Returns the shard of the current worker.
    fn shard_number() -> usize {
        Worker::current_number() % SHARDS
    }

    fn shard(&self, worker: usize) -> MutexGuard<'_, Shard> {
        self.shards[worker % SHARDS].lock()
    }

    /// Returns a connection to `origin` that is still open, as far as is known here. From now on events on it
    /// wake the task that took it.
    pub(super) fn take(&self, origin: &str, cx: &mut Context<'_>) -> Poll<Option<TcpStream>> {
        let worker = Self::shard_number();
        loop {
            let taken = self.shard(worker).origins.get_mut(origin).and_then(|it| it.idle.pop());
            let Some(mut idle) = taken else { return Poll::Ready(None) };
            if is_usable(&mut idle.tcp, cx) {
                return Poll::Ready(Some(idle.tcp));
            }
        }
    }

    /// Keeps a connection for the next request, unless enough are kept.
    pub(super) fn keep(self: &Arc<Self>, origin: &str, mut tcp: TcpStream) {
        let worker = Self::shard_number();
        let mut shard = self.shard(worker);
        let Some(origin_pool) = self.origin_pool(worker, &mut shard, origin) else { return };
        let Some(given) = origin_pool.give_to_waiter(tcp) else { return };
        tcp = given;
        if origin_pool.idle.len() >= self.max_idle {
            return;
        }
        if is_quiet(&mut tcp, &mut Context::from_waker(&origin_pool.close_waker)) {
            origin_pool.idle.push(Idle { tcp, since: Instant::now() });
            if shard.sweeper.is_none() {
                let sweeping = sweep(Arc::downgrade(self), worker, self.idle);
                shard.sweeper = Some(self.runtime.spawn(sweeping).abort_handle());
            }
        }
    }

    /// Waits for a connection that another caller has finished with.
    pub(super) fn wait_for_idle(self: &Arc<Self>, origin: &Target) -> SocketWaiter {
        let waiter = Arc::new(Waiter(Mutex::new(WaitState::Open(None))));
        let worker = Self::shard_number();
        if let Some(origin_pool) =
            self.origin_pool(worker, &mut self.shard(worker), origin.origin())
        {
            origin_pool.waiting.push_back(waiter.clone());
        }
        SocketWaiter { pool: self.clone(), worker, origin: origin.clone(), waiter }
    }

    fn origin_pool<'a>(
        self: &Arc<Self>,
        worker: usize,
        shard: &'a mut Shard,
        origin: &str,
    ) -> Option<&'a mut OriginPool> {
        if !shard.origins.contains_key(origin) {
            let (close_waker, waiting) = (self.close_waker(worker, origin), VecDeque::new());
            shard
                .origins
                .insert(origin.into(), OriginPool { idle: Vec::new(), close_waker, waiting });
        }
        shard.origins.get_mut(origin)
    }

    fn close_waker(self: &Arc<Self>, worker: usize, origin: &str) -> Waker {
        let close_waker = CloseWaker {
            pool: Arc::downgrade(self),
            worker,
            origin: origin.into(),
            scheduled: AtomicBool::new(false),
        };
        Arc::new(close_waker).into()
    }

    /// Closes connections that the server has closed.
    fn close_ended(&self, worker: usize, origin: &str) {
        let mut closed = Vec::new();
        if let Some(OriginPool { idle, close_waker, .. }) =
            self.shard(worker).origins.get_mut(origin)
        {
            let mut cx = Context::from_waker(close_waker);
            closed.extend(idle.extract_if(.., |idle| !is_quiet(&mut idle.tcp, &mut cx)));
        }
        drop(closed);
    }

    /// Closes connections that were idle for too long. Returns whether any are left.
    fn sweep(&self, worker: usize) -> bool {
        let mut shard = self.shard(worker);
        for origin_pool in shard.origins.values_mut() {
            origin_pool.idle.retain(|idle| idle.since.elapsed() < self.idle);
        }
        shard.origins.retain(|_, origin_pool| origin_pool.is_needed());
        let some = !shard.origins.is_empty();
        if !some {
            *shard = Shard::default();
        }
        some
    }
}

impl Drop for IdlePool {
    fn drop(&mut self) {
        for shard in &self.shards {
            if let Some(sweeper) = shard.lock().sweeper.take() {
                sweeper.abort();
            }
        }
    }
}

/// State shared by a caller that waits for a connection and a caller that has one.
struct Waiter(Mutex<WaitState>);

enum WaitState {
    Open(Option<Waker>),
    Given(TcpStream),
    /// The connection was taken, or the caller does not wait any more.
    Over,
}

/// Future of [`IdlePool::wait_for_idle`]. Dropping it passes on a connection that it was given.
pub(super) struct SocketWaiter {
    pool: Arc<IdlePool>,
    worker: usize,
    origin: Target,
    waiter: Arc<Waiter>,
}

impl Future for SocketWaiter {
    type Output = TcpStream;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TcpStream> {
        let mut state = self.waiter.0.lock();
        match std::mem::replace(&mut *state, WaitState::Over) {
            WaitState::Given(mut tcp) => {
                // An unusable connection was closed meanwhile, and a new one is being opened anyway.
                if is_usable(&mut tcp, cx) { Poll::Ready(tcp) } else { Poll::Pending }
            }
            WaitState::Open(_) => {
                *state = WaitState::Open(Some(cx.waker().clone()));
                Poll::Pending
            }
            WaitState::Over => Poll::Pending,
        }
    }
}

impl Drop for SocketWaiter {
    fn drop(&mut self) {
        let was = std::mem::replace(&mut *self.waiter.0.lock(), WaitState::Over);
        let origin = self.origin.origin();
        if let WaitState::Given(tcp) = was {
            return self.pool.keep(origin, tcp);
        }
        let mut shard = self.pool.shard(self.worker);
        if let Some(origin_pool) = shard.origins.get_mut(origin) {
            origin_pool.waiting.retain(|other| !Arc::ptr_eq(other, &self.waiter));
            if !origin_pool.is_needed() {
                shard.origins.remove(origin);
            }
        }
    }
}

async fn sweep(pool: Weak<IdlePool>, worker: usize, idle: Duration) {
    loop {
        tokio::time::sleep(idle).await;
        if !pool.upgrade().is_some_and(|pool| pool.sweep(worker)) {
            return;
        }
    }
}

/// Returns whether a request may go over the connection: it is open, and no unrequested bytes came that would
/// be taken for the response. The kernel is asked each time, because bytes that came a moment ago may not have
/// reached the runtime.
fn is_usable(tcp: &mut TcpStream, cx: &mut Context<'_>) -> bool {
    is_quiet(tcp, cx) && is_open(tcp)
}

/// Returns whether neither the end of the connection nor unrequested bytes came. If so, the next event wakes
/// `cx`.
fn is_quiet(tcp: &mut TcpStream, cx: &mut Context<'_>) -> bool {
    let mut byte = [0];
    Pin::new(tcp).poll_read(cx, &mut ReadBuf::new(&mut byte)).is_pending()
}

/// Returns the same from the kernel, which may be ahead of the runtime: a request on a closed connection would
/// have an unknown delivery.
fn is_open(tcp: &TcpStream) -> bool {
    let looking = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(rustix::net::recv(tcp, &mut [0u8][..], looking), Err(Errno::AGAIN))
}

/// Waker of the idle connections of one origin.
struct CloseWaker {
    pool: Weak<IdlePool>,
    worker: usize,
    origin: Box<str>,
    /// Whether a check is already scheduled.
    scheduled: AtomicBool,
}

impl Wake for CloseWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// Schedules the check in a task, because the thread that wakes has other work.
    fn wake_by_ref(self: &Arc<Self>) {
        if self.scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(pool) = self.pool.upgrade() else { return };
        let close_waker = self.clone();
        let runtime = pool.runtime.clone();
        drop(pool);
        runtime.spawn(async move {
            close_waker.scheduled.store(false, Ordering::Release);
            if let Some(pool) = close_waker.pool.upgrade() {
                pool.close_ended(close_waker.worker, &close_waker.origin);
            }
        });
    }
}

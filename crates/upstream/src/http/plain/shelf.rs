//! Connection pool: idle HTTP connections, kept for the next request.

use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use rustc_hash::FxBuildHasher;
use rustix::{io::Errno, net::RecvFlags};
use tokio::{
    io::{AsyncRead as _, ReadBuf},
    net::TcpStream,
    runtime::Handle,
    task::AbortHandle,
    time::Instant,
};

use crate::{
    http::{ClientSettings, Target},
    lane,
    lock::lock,
};

/// Idle connections by origin. A connection is closed when the server closes it, or when it was idle for a
/// while.
pub(super) struct Shelves {
    runtime: Handle,
    idle: Duration,
    most: usize,
    /// Connections per worker: events of a connection arrive on the thread that opened it.
    kept: [Mutex<Kept>; LANES],
}

/// Number of shards. If there are more workers, they share shards.
const LANES: usize = 32;

#[derive(Default)]
struct Kept {
    shelves: HashMap<Box<str>, Shelf, FxBuildHasher>,
    /// Task that closes connections that were idle for too long, while there are any.
    sweeper: Option<AbortHandle>,
}

/// Idle connection.
struct Idle {
    tcp: TcpStream,
    since: Instant,
}

/// Idle connections of one origin, the most recently used one at the end.
struct Shelf {
    lines: Vec<Idle>,
    /// Woken when one of the connections is closed.
    alarm: Waker,
    /// Callers that found no connection. The first caller gets the next connection.
    waiting: VecDeque<Arc<Wish>>,
}

impl Shelf {
    fn is_needed(&self) -> bool {
        !self.lines.is_empty() || !self.waiting.is_empty()
    }

    /// Gives the connection to the first caller that waits. Returns it if none does.
    fn hand_out(&mut self, tcp: TcpStream) -> Option<TcpStream> {
        while let Some(wish) = self.waiting.pop_front() {
            let mut wished = lock(&wish.0);
            if let Wished::Open(waker) = &mut *wished {
                let waker = waker.take();
                *wished = Wished::Given(tcp);
                drop(wished);
                waker.inspect(Waker::wake_by_ref);
                return None;
            }
        }
        Some(tcp)
    }
}

impl Shelves {
    pub(super) fn new(settings: &ClientSettings, runtime: Handle) -> Arc<Self> {
        let (idle, most) = (settings.idle, settings.max_idle);
        Arc::new(Self { runtime, idle, most, kept: Default::default() })
    }

    /// Returns an empty set with the same settings.
    pub(super) fn apart(&self) -> Arc<Self> {
        let (runtime, idle, most) = (self.runtime.clone(), self.idle, self.most);
        Arc::new(Self { runtime, idle, most, kept: Default::default() })
    }

    /// Returns the shard of the current worker.
    fn here() -> usize {
        lane::number() % LANES
    }

    fn kept(&self, lane: usize) -> MutexGuard<'_, Kept> {
        lock(&self.kept[lane % LANES])
    }

    /// Returns a connection to `origin` that is still open, as far as is known here. From now on events on it
    /// wake the task that took it.
    pub(super) fn take(&self, origin: &str, cx: &mut Context<'_>) -> Poll<Option<TcpStream>> {
        let lane = Self::here();
        loop {
            let taken = self.kept(lane).shelves.get_mut(origin).and_then(|it| it.lines.pop());
            let Some(mut idle) = taken else { return Poll::Ready(None) };
            if is_usable(&mut idle.tcp, cx) {
                return Poll::Ready(Some(idle.tcp));
            }
        }
    }

    /// Keeps a connection for the next request, unless enough are kept.
    pub(super) fn keep(self: &Arc<Self>, origin: &str, mut tcp: TcpStream) {
        let lane = Self::here();
        let mut kept = self.kept(lane);
        let Some(shelf) = self.shelf(lane, &mut kept, origin) else { return };
        let Some(given) = shelf.hand_out(tcp) else { return };
        tcp = given;
        if shelf.lines.len() >= self.most {
            return;
        }
        if is_quiet(&mut tcp, &mut Context::from_waker(&shelf.alarm)) {
            shelf.lines.push(Idle { tcp, since: Instant::now() });
            if kept.sweeper.is_none() {
                let sweeping = sweep(Arc::downgrade(self), lane, self.idle);
                kept.sweeper = Some(self.runtime.spawn(sweeping).abort_handle());
            }
        }
    }

    /// Waits for a connection that another caller has finished with.
    pub(super) fn wish(self: &Arc<Self>, origin: &Target) -> SocketWaiter {
        let wish = Arc::new(Wish(Mutex::new(Wished::Open(None))));
        let lane = Self::here();
        if let Some(shelf) = self.shelf(lane, &mut self.kept(lane), origin.origin()) {
            shelf.waiting.push_back(wish.clone());
        }
        SocketWaiter { shelves: self.clone(), lane, origin: origin.clone(), wish }
    }

    fn shelf<'a>(
        self: &Arc<Self>,
        lane: usize,
        kept: &'a mut Kept,
        origin: &str,
    ) -> Option<&'a mut Shelf> {
        if !kept.shelves.contains_key(origin) {
            let (alarm, waiting) = (self.alarm(lane, origin), VecDeque::new());
            kept.shelves.insert(origin.into(), Shelf { lines: Vec::new(), alarm, waiting });
        }
        kept.shelves.get_mut(origin)
    }

    fn alarm(self: &Arc<Self>, lane: usize, origin: &str) -> Waker {
        let alarm = Alarm {
            shelves: Arc::downgrade(self),
            lane,
            origin: origin.into(),
            rings: AtomicBool::new(false),
        };
        Arc::new(alarm).into()
    }

    /// Closes connections that the server has closed.
    fn look(&self, lane: usize, origin: &str) {
        let mut closed = Vec::new();
        if let Some(Shelf { lines, alarm, .. }) = self.kept(lane).shelves.get_mut(origin) {
            let mut cx = Context::from_waker(alarm);
            closed.extend(lines.extract_if(.., |idle| !is_quiet(&mut idle.tcp, &mut cx)));
        }
        drop(closed);
    }

    /// Closes connections that were idle for too long. Returns whether any are left.
    fn sweep(&self, lane: usize) -> bool {
        let mut kept = self.kept(lane);
        for shelf in kept.shelves.values_mut() {
            shelf.lines.retain(|idle| idle.since.elapsed() < self.idle);
        }
        kept.shelves.retain(|_, shelf| shelf.is_needed());
        let some = !kept.shelves.is_empty();
        if !some {
            *kept = Kept::default();
        }
        some
    }
}

impl Drop for Shelves {
    fn drop(&mut self) {
        for kept in &self.kept {
            if let Some(sweeper) = lock(kept).sweeper.take() {
                sweeper.abort();
            }
        }
    }
}

/// State shared by a caller that waits for a connection and a caller that has one.
struct Wish(Mutex<Wished>);

enum Wished {
    Open(Option<Waker>),
    Given(TcpStream),
    /// The connection was taken, or the caller does not wait any more.
    Over,
}

/// Future of [`Shelves::wish`]. Dropped, it passes on a connection that it was given.
pub(super) struct SocketWaiter {
    shelves: Arc<Shelves>,
    lane: usize,
    origin: Target,
    wish: Arc<Wish>,
}

impl Future for SocketWaiter {
    type Output = TcpStream;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TcpStream> {
        let mut wished = lock(&self.wish.0);
        match std::mem::replace(&mut *wished, Wished::Over) {
            Wished::Given(mut tcp) => {
                // An unusable connection was closed meanwhile, and a new one is being opened anyway.
                if is_usable(&mut tcp, cx) { Poll::Ready(tcp) } else { Poll::Pending }
            }
            Wished::Open(_) => {
                *wished = Wished::Open(Some(cx.waker().clone()));
                Poll::Pending
            }
            Wished::Over => Poll::Pending,
        }
    }
}

impl Drop for SocketWaiter {
    fn drop(&mut self) {
        let was = std::mem::replace(&mut *lock(&self.wish.0), Wished::Over);
        let origin = self.origin.origin();
        if let Wished::Given(tcp) = was {
            return self.shelves.keep(origin, tcp);
        }
        let mut kept = self.shelves.kept(self.lane);
        if let Some(shelf) = kept.shelves.get_mut(origin) {
            shelf.waiting.retain(|other| !Arc::ptr_eq(other, &self.wish));
            if !shelf.is_needed() {
                kept.shelves.remove(origin);
            }
        }
    }
}

async fn sweep(shelves: Weak<Shelves>, lane: usize, idle: Duration) {
    loop {
        tokio::time::sleep(idle).await;
        if !shelves.upgrade().is_some_and(|shelves| shelves.sweep(lane)) {
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
struct Alarm {
    shelves: Weak<Shelves>,
    lane: usize,
    origin: Box<str>,
    /// Whether a check is already scheduled.
    rings: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// Schedules the check in a task, because the thread that wakes has other work.
    fn wake_by_ref(self: &Arc<Self>) {
        if self.rings.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(shelves) = self.shelves.upgrade() else { return };
        let alarm = self.clone();
        let runtime = shelves.runtime.clone();
        drop(shelves);
        runtime.spawn(async move {
            alarm.rings.store(false, Ordering::Release);
            if let Some(shelves) = alarm.shelves.upgrade() {
                shelves.look(alarm.lane, &alarm.origin);
            }
        });
    }
}

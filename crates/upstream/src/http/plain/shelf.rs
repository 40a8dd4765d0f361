//! Connections that nobody uses.

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

/// Connections that nobody uses, by origin. Closed by the server, they are closed here; and one that
/// nobody took for a while is closed too.
pub(super) struct Shelves {
    runtime: Handle,
    idle: Duration,
    most: usize,
    /// Those of each lane by themselves: what comes on a connection is heard by the thread that made it.
    kept: [Mutex<Kept>; LANES],
}

/// More lanes than this share with each other.
const LANES: usize = 32;

#[derive(Default)]
struct Kept {
    shelves: HashMap<Box<str>, Shelf, FxBuildHasher>,
    /// Looks for those that nobody took, while there are any.
    sweeper: Option<AbortHandle>,
}

/// A connection that nobody uses.
struct Idle {
    tcp: TcpStream,
    since: Instant,
}

/// Those of one origin, the one that was used last at the end.
struct Shelf {
    lines: Vec<Idle>,
    /// Woken when one of them is closed.
    alarm: Waker,
    /// Those who found none, and take the next: who came first is served first.
    waiting: VecDeque<Arc<Wish>>,
}

impl Shelf {
    fn is_needed(&self) -> bool {
        !self.lines.is_empty() || !self.waiting.is_empty()
    }

    /// Gives it to the first who waits. If nobody does it comes back.
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

    /// Shelves of the same kind with nothing on them.
    pub(super) fn apart(&self) -> Arc<Self> {
        let (runtime, idle, most) = (self.runtime.clone(), self.idle, self.most);
        Arc::new(Self { runtime, idle, most, kept: Default::default() })
    }

    /// The number of those that are used here.
    fn here() -> usize {
        lane::number() % LANES
    }

    fn kept(&self, lane: usize) -> MutexGuard<'_, Kept> {
        lock(&self.kept[lane % LANES])
    }

    /// One to `origin` that is still open, as far as is known here. From now on what comes on it wakes
    /// whoever took it.
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

    /// Keeps one for the next who needs it, unless there are enough.
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

    /// Waits for one that somebody else has done with.
    pub(super) fn wish(self: &Arc<Self>, origin: &Target) -> Wishing {
        let wish = Arc::new(Wish(Mutex::new(Wished::Open(None))));
        let lane = Self::here();
        if let Some(shelf) = self.shelf(lane, &mut self.kept(lane), origin.origin()) {
            shelf.waiting.push_back(wish.clone());
        }
        Wishing { shelves: self.clone(), lane, origin: origin.clone(), wish }
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

    /// Closes what was closed over there.
    fn look(&self, lane: usize, origin: &str) {
        let mut closed = Vec::new();
        if let Some(Shelf { lines, alarm, .. }) = self.kept(lane).shelves.get_mut(origin) {
            let mut cx = Context::from_waker(alarm);
            closed.extend(lines.extract_if(.., |idle| !is_quiet(&mut idle.tcp, &mut cx)));
        }
        drop(closed);
    }

    /// Closes what nobody took for so long. Says whether anything is left.
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

/// What somebody who waits for a connection shares with who has one.
struct Wish(Mutex<Wished>);

enum Wished {
    Open(Option<Waker>),
    Given(TcpStream),
    /// It was taken, or nobody waits any more.
    Over,
}

/// See [`Shelves::wish`]. Dropped, it passes on what it was given.
pub(super) struct Wishing {
    shelves: Arc<Shelves>,
    lane: usize,
    origin: Target,
    wish: Arc<Wish>,
}

impl Future for Wishing {
    type Output = TcpStream;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TcpStream> {
        let mut wished = lock(&self.wish.0);
        match std::mem::replace(&mut *wished, Wished::Over) {
            Wished::Given(mut tcp) => {
                // Else it was closed on its way here, and a new one is being made anyway.
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

impl Drop for Wishing {
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

/// Whether a request may go over it: it is open, and nothing came on it that nobody asked for and that
/// would be taken for the answer. The kernel is asked each time, because bytes that came a moment ago may
/// not have reached the runtime.
fn is_usable(tcp: &mut TcpStream, cx: &mut Context<'_>) -> bool {
    is_quiet(tcp, cx) && is_open(tcp)
}

/// Whether nothing came on it: neither its end, nor what nobody asked for. Else it wakes later.
fn is_quiet(tcp: &mut TcpStream, cx: &mut Context<'_>) -> bool {
    let mut byte = [0];
    Pin::new(tcp).poll_read(cx, &mut ReadBuf::new(&mut byte)).is_pending()
}

/// The same as the kernel knows it, which the runtime may not have heard of yet: a request on a
/// connection that is closed would be one of which nobody knows whether it was executed.
fn is_open(tcp: &TcpStream) -> bool {
    let looking = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(rustix::net::recv(tcp, &mut [0u8][..], looking), Err(Errno::AGAIN))
}

/// Something came on a connection that nobody uses.
struct Alarm {
    shelves: Weak<Shelves>,
    lane: usize,
    origin: Box<str>,
    /// Somebody looks already.
    rings: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// Whoever wakes has other things to do, so a task looks.
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

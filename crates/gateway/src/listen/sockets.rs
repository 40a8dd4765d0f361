//! Registry of open sockets: their limit in all and per address, and the eviction of idle ones. The public and the internal
//! listener have one each.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::task::AtomicWaker;
use stayput_sync::Mutex;
use tokio::{sync::Notify, time::Instant};

/// Idle time of a socket with a request in progress.
const BUSY: u64 = u64::MAX;

/// Idle time of a socket that is being closed to make room.
const EVICTED: u64 = u64::MAX - 1;

/// Idle time of a socket from which nothing was read yet, and that is not to be closed before.
const NEW: u64 = u64::MAX - 2;

/// Limits of open sockets.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketLimits {
    pub(super) all: usize,
    /// Maximum of open sockets of one address; `None` if addresses are not limited.
    pub(super) of_address: Option<usize>,
    /// Whether a socket from which nothing was read yet can be closed to make room. Its request may have arrived with it.
    pub(super) evicts_new: bool,
}

/// Limit that leaves no room for a socket: all sockets that it counts have a request in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketsFull {
    All(usize),
    OfAddress(usize),
}

/// Open sockets of one listener.
#[derive(Debug)]
pub(super) struct Sockets {
    start: Instant,
    table: Mutex<Table>,
    /// Signalled when a socket is closed.
    closed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<u64, Arc<SocketActivity>>,
    of_address: HashMap<IpAddr, usize>,
    next: u64,
    /// Sockets that were told to close, but are still open.
    leaving: usize,
}

/// Activity of one socket, which its connection reports.
#[derive(Debug)]
pub(super) struct SocketActivity {
    address: IpAddr,
    start: Instant,
    /// Milliseconds from `start` to the end of the last request; [`BUSY`] while a request is in progress.
    idle_since: AtomicU64,
    is_evicted: AtomicBool,
    /// Whether a request on it had the signature of a replica.
    is_verified: AtomicBool,
    waker: AtomicWaker,
}

impl SocketActivity {
    /// Marks that the connection has begun to read. Without a request by then, the socket is idle.
    pub(super) fn begin_reading(&self) {
        let since = millis(self.start.elapsed());
        let _ = self.idle_since.compare_exchange(NEW, since, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Marks that a replica has signed a request on this socket.
    pub(super) fn set_verified(&self) {
        self.is_verified.store(true, Ordering::Relaxed);
    }

    /// Whether a replica has signed a request on this socket.
    pub(super) fn is_verified(&self) -> bool {
        self.is_verified.load(Ordering::Relaxed)
    }

    /// Marks the beginning of a request. Returns false if the socket is being closed: the request must not run then.
    pub(super) fn begin_request(&self) -> bool {
        let mark = |since| (since != EVICTED).then_some(BUSY);
        self.idle_since.fetch_update(Ordering::AcqRel, Ordering::Acquire, mark).is_ok()
    }

    /// Marks the end of a request.
    pub(super) fn end_request(&self, now: Instant) {
        let since = millis(now.saturating_duration_since(self.start));
        let mark = |before| (before != EVICTED).then_some(since);
        let _ = self.idle_since.fetch_update(Ordering::AcqRel, Ordering::Acquire, mark);
    }

    /// Tells the connection to close, if it is idle.
    fn evict(&self, since: u64) -> bool {
        let marked =
            self.idle_since.compare_exchange(since, EVICTED, Ordering::AcqRel, Ordering::Acquire);
        if marked.is_ok() {
            self.is_evicted.store(true, Ordering::Release);
            self.waker.wake();
        }
        marked.is_ok()
    }

    /// Ready when the connection has to close.
    pub(super) fn poll_evicted(&self, cx: &Context<'_>, is_known: &mut bool) -> Poll<()> {
        // A connection is one task, so one registration of its waker is enough.
        if !std::mem::replace(is_known, true) {
            self.waker.register(cx.waker());
        }
        if self.is_evicted.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Place of one open socket. Dropping it makes room.
#[derive(Debug)]
pub(super) struct SocketPlace {
    sockets: Arc<Sockets>,
    number: u64,
    pub(super) activity: Arc<SocketActivity>,
}

impl Default for Sockets {
    fn default() -> Self {
        Self { start: Instant::now(), table: Mutex::default(), closed: Notify::new() }
    }
}

impl Sockets {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Adds a socket. At a limit, the socket that was idle longest is closed.
    ///
    /// # Errors
    /// [`SocketsFull`] if no socket is idle.
    pub(super) fn enter(
        self: &Arc<Self>,
        address: IpAddr,
        limits: SocketLimits,
    ) -> Result<SocketPlace, SocketsFull> {
        let address = client_of(address);
        let mut table = self.table();
        let of_address = table.of_address.get(&address).copied().unwrap_or_default();
        if let Some(limit) = limits.of_address.filter(|limit| of_address >= *limit) {
            let evicted = table.evict(|it| it.address == address);
            evicted.then_some(()).ok_or(SocketsFull::OfAddress(limit))?;
        } else if table.open.len() - table.leaving.min(table.open.len()) >= limits.all {
            table.evict(|_| true).then_some(()).ok_or(SocketsFull::All(limits.all))?;
        }
        let activity = Arc::new(SocketActivity {
            address,
            start: self.start,
            idle_since: AtomicU64::new(match limits.evicts_new {
                true => millis(self.start.elapsed()),
                false => NEW,
            }),
            is_evicted: AtomicBool::new(false),
            is_verified: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        let number = table.next;
        table.next += 1;
        table.open.insert(number, activity.clone());
        *table.of_address.entry(address).or_default() += 1;
        Ok(SocketPlace { sockets: self.clone(), number, activity })
    }

    /// Waits until the last socket is closed.
    pub(super) async fn empty(&self) {
        while !self.table().open.is_empty() {
            self.closed.notified().await;
        }
    }
}

impl Table {
    /// Closes the socket that was idle longest among those that `which` accepts. Returns false if none is idle.
    fn evict(&mut self, which: impl Fn(&SocketActivity) -> bool) -> bool {
        // Another thread may begin a request on the chosen socket, so a few are tried.
        for _ in 0..8 {
            let idle = self.open.values().filter(|it| which(it));
            let idle = idle.map(|it| (it.idle_since.load(Ordering::Acquire), it));
            let oldest = idle.filter(|(since, _)| *since < NEW).min_by_key(|(since, _)| *since);
            let Some((since, oldest)) = oldest else { return false };
            if oldest.evict(since) {
                let address = oldest.address;
                self.leaving += 1;
                self.leave(address);
                return true;
            }
        }
        false
    }

    /// Counts one socket less of an address.
    fn leave(&mut self, address: IpAddr) {
        let Some(count) = self.of_address.get_mut(&address) else { return };
        *count -= 1;
        if *count == 0 {
            self.of_address.remove(&address);
        }
    }
}

impl Drop for SocketPlace {
    fn drop(&mut self) {
        let mut table = self.sockets.table();
        table.open.remove(&self.number);
        if self.activity.is_evicted.load(Ordering::Acquire) {
            // Its address has been counted down before.
            table.leaving = table.leaving.saturating_sub(1);
        } else {
            table.leave(self.activity.address);
        }
        drop(table);
        self.sockets.closed.notify_one();
    }
}

/// Returns the address by which clients are counted. An IPv6 client usually has a whole network of 64 bits.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        address => address,
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LIMITS: SocketLimits = SocketLimits { all: 3, of_address: Some(2), evicts_new: true };

    fn client(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    }

    /// R170: the limit counts addresses apart, busy sockets stay open, and the socket that was idle longest is closed.
    #[test]
    fn idle_socket_is_evicted_and_busy_one_is_not() {
        let sockets = Arc::new(Sockets::default());
        let [one, two] = [1, 1].map(|it| sockets.enter(client(it), LIMITS).unwrap());
        let at = |seconds| sockets.start + std::time::Duration::from_secs(seconds);
        one.activity.end_request(at(20));
        two.activity.end_request(at(10));
        let other = sockets.enter(client(2), LIMITS).unwrap();
        assert!(other.activity.begin_request());
        let three = sockets.enter(client(1), LIMITS).unwrap();
        assert!(!two.activity.begin_request(), "it was idle longer than the first");
        assert!(one.activity.begin_request() && three.activity.begin_request());
        assert_eq!(sockets.enter(client(1), LIMITS).err(), Some(SocketsFull::OfAddress(2)));
        assert_eq!(sockets.enter(client(3), LIMITS).err(), Some(SocketsFull::All(3)));
        drop((one, two));
        assert!(sockets.enter(client(3), LIMITS).is_ok());
        drop((three, other));
        assert!(sockets.table().of_address.is_empty() && sockets.table().leaving == 0);
    }

    /// R170: sockets that arrive faster than they are read lock no client out. Those of replicas wait, because each has a request.
    #[test]
    fn new_socket_is_evicted_unless_its_request_arrived_with_it() {
        for (evicts_new, full) in [(true, None), (false, Some(SocketsFull::All(1)))] {
            let sockets = Arc::new(Sockets::default());
            let limits = SocketLimits { all: 1, of_address: None, evicts_new };
            let first = sockets.enter(client(1), limits).unwrap();
            assert_eq!(sockets.enter(client(2), limits).err(), full);
            first.activity.begin_reading();
            assert!(sockets.enter(client(3), limits).is_ok());
        }
    }

    #[test]
    fn ipv6_clients_are_counted_by_their_network() {
        let [one, other, far] = ["2001:db8::1", "2001:db8::2:3", "2001:db8:0:1::1"]
            .map(|it| client_of(it.parse().unwrap()));
        assert!(one == other && one != far);
    }
}

//! Call in flight, as stored by the link.

use stayput_wire::IdBuf;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

use super::{CallOptions, ClientCapabilities, Inbox, PreparedMessage, driver::Driver};

/// Call in flight. Link, caller and reader share it in one allocation.
#[derive(Debug)]
pub(crate) struct PendingCall {
    /// Id on the wire.
    pub(crate) number: u64,
    pub(crate) inbox: Inbox,
    /// Id of the caller's request. `None` if it has none.
    pub(crate) id: Option<IdBuf>,
    /// Progress token of the caller, as it was written.
    pub(crate) token: Option<Box<str>>,
    pub(crate) capabilities: ClientCapabilities,
    /// Time without progress after which the call fails.
    pub(crate) limit: Duration,
    began: Instant,
    /// Time between `began` and the last progress, in nanoseconds.
    progressed: AtomicU64,
    pub(super) driver: Driver,
    /// Whether the stream carries more than the answer. Then a task reads, so that messages do not wait for
    /// the caller.
    streams: AtomicBool,
    /// Whether the call is a handshake, which is never cancelled on the wire.
    pub(crate) is_handshake: bool,
}

impl PendingCall {
    pub(crate) fn new(
        number: u64,
        id: Option<IdBuf>,
        prepared: &mut PreparedMessage,
        options: CallOptions,
        limit: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            inbox: Inbox::default(),
            id,
            token: prepared.token.take(),
            capabilities: options.capabilities,
            limit,
            began: Instant::now(),
            progressed: AtomicU64::new(0),
            driver: Driver::default(),
            streams: AtomicBool::new(false),
            is_handshake: prepared.handshake,
        })
    }

    /// Id of the answer for the caller.
    pub(crate) fn id_back(&self) -> String {
        self.id.as_ref().map_or_else(|| self.number.to_string(), |id| id.as_str().to_owned())
    }

    /// Whether the call is a subscription, see [`Link::listen`](super::Link::listen): the server does no work for it.
    pub(crate) fn listens(&self) -> bool {
        self.limit == Duration::MAX
    }

    /// Time at which the call expires without progress.
    pub(crate) fn expires(&self) -> Instant {
        let progressed = Duration::from_nanos(self.progressed.load(Ordering::Relaxed));
        after(self.began + progressed, self.limit)
    }

    /// Restarts the timeout after progress.
    pub(crate) fn progress(&self) {
        // Overflows after five centuries.
        let progressed = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.progressed.store(progressed, Ordering::Relaxed);
    }

    /// Notes that a message other than the answer came.
    pub(crate) fn streaming(&self) {
        self.streams.store(true, Ordering::Relaxed);
    }

    pub(super) fn streams(&self) -> bool {
        self.streams.load(Ordering::Relaxed)
    }
}

/// Time at which a call that starts now expires without progress.
pub(crate) fn expiry(limit: Duration) -> Instant {
    after(Instant::now(), limit)
}

fn after(moment: Instant, limit: Duration) -> Instant {
    // A timeout that exceeds the clock's range becomes one year.
    moment.checked_add(limit).unwrap_or_else(|| moment + Duration::from_secs(365 * 86_400))
}

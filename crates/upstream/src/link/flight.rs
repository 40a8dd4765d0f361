//! One call in flight, as the link has it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use stayput_wire::IdBuf;
use tokio::time::Instant;

use super::{CallOptions, Declares, Inbox, Prepared, driver::Driver};

/// One call in flight: all that the link, its caller and whoever reads its answer share of it, in one
/// piece of memory.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Its id on the wire.
    pub(crate) number: u64,
    pub(crate) inbox: Inbox,
    /// The id under which the answer goes back; none if the caller gave none.
    pub(crate) id: Option<IdBuf>,
    /// The caller's progress token, as it was written.
    pub(crate) token: Option<Box<str>>,
    pub(crate) declares: Declares,
    /// The time without progress after which it fails.
    pub(crate) limit: Duration,
    began: Instant,
    /// How long after that it last made progress, in nanoseconds.
    progressed: AtomicU64,
    pub(super) driver: Driver,
    /// More than an answer comes: it is not for the caller to read that when it suits him.
    streams: AtomicBool,
    /// A handshake is never cancelled on the wire.
    pub(crate) silent: bool,
}

impl Flight {
    pub(crate) fn new(
        number: u64,
        id: Option<IdBuf>,
        prepared: &mut Prepared,
        options: CallOptions,
        limit: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            inbox: Inbox::default(),
            id,
            token: prepared.token.take(),
            declares: options.declares,
            limit,
            began: Instant::now(),
            progressed: AtomicU64::new(0),
            driver: Driver::default(),
            streams: AtomicBool::new(false),
            silent: prepared.handshake,
        })
    }

    /// The id under which its answer goes back.
    pub(crate) fn id_back(&self) -> String {
        self.id.as_ref().map_or_else(|| self.number.to_string(), |id| id.as_str().to_owned())
    }

    /// Whether it only listens, see [`Link::listen`](super::Link::listen): the server does nothing for it meanwhile.
    pub(crate) fn listens(&self) -> bool {
        self.limit == Duration::MAX
    }

    /// When it is over, if it makes no progress.
    pub(crate) fn expires(&self) -> Instant {
        let progressed = Duration::from_nanos(self.progressed.load(Ordering::Relaxed));
        after(self.began + progressed, self.limit)
    }

    /// It makes progress: its time begins anew.
    pub(crate) fn progress(&self) {
        // More nanoseconds than fit are five centuries.
        let progressed = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.progressed.store(progressed, Ordering::Relaxed);
    }

    /// Something came that is not its answer, and more may come.
    pub(crate) fn streaming(&self) {
        self.streams.store(true, Ordering::Relaxed);
    }

    pub(super) fn streams(&self) -> bool {
        self.streams.load(Ordering::Relaxed)
    }
}

/// When a call that makes no progress is over.
pub(crate) fn expiry(limit: Duration) -> Instant {
    after(Instant::now(), limit)
}

fn after(moment: Instant, limit: Duration) -> Instant {
    // A limit of centuries is none, and none fits into the clock.
    moment.checked_add(limit).unwrap_or_else(|| moment + Duration::from_secs(365 * 86_400))
}

//! One call in flight, as the link has it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use stayput_wire::IdBuf;
use tokio::time::Instant;

use super::{CallOptions, Declares, Inbox, Prepared, driver::Driver};
use crate::lock::lock;

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
    expires: Mutex<Instant>,
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
            expires: Mutex::new(expiry(limit)),
            driver: Driver::default(),
            streams: AtomicBool::new(false),
            silent: prepared.handshake,
        })
    }

    /// The id under which its answer goes back.
    pub(crate) fn id_back(&self) -> String {
        self.id.as_ref().map_or_else(|| self.number.to_string(), |id| id.as_str().to_owned())
    }

    /// When it is over, if it makes no progress.
    pub(crate) fn expires(&self) -> Instant {
        *lock(&self.expires)
    }

    /// It makes progress: its time begins anew.
    pub(crate) fn progress(&self) {
        *lock(&self.expires) = expiry(self.limit);
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
    let now = Instant::now();
    // A limit of centuries is none, and none fits into the clock.
    now.checked_add(limit).unwrap_or_else(|| now + Duration::from_secs(365 * 86_400))
}

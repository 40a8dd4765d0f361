//! State that the socket, the requests and the responses of one connection share. hyper owns each of them.

use std::{
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use stayput_sync::Mutex;
use tokio::time::Instant;

use super::{IDLE, timer::ConnTimer};
use crate::{
    listen::{sockets::SocketActivity, workers},
    reply::{Access, SocketTimer},
    state::AppState,
};

/// State of one connection. All of it is used by one task, so no lock is ever waited for.
pub(super) struct ConnState {
    /// Twice the number of answered requests, plus one while a request is in progress.
    turn: AtomicU64,
    /// Whether the request was read to its end, so that the connection can be closed without losing the response.
    is_read: AtomicBool,
    /// Whether the client takes no more bytes at the moment.
    is_blocked: AtomicBool,
    /// Activity of the socket, which decides whether it is closed to make room. `None` for a Unix socket.
    activity: Option<Arc<SocketActivity>>,
    inner: Mutex<Inner>,
}

struct Inner {
    /// Application state of the current request.
    app: Arc<AppState>,
    timer: ConnTimer,
    /// Deadline of the client's next action.
    due: Instant,
    /// Access of the client to the stream that is being written.
    access: Option<Box<dyn Access>>,
    /// Whether the client has lost the access.
    is_lost: bool,
}

impl ConnState {
    /// Creates the state of a new connection, whose first request has to begin within the stall time.
    pub(super) fn new(app: Arc<AppState>, activity: Option<Arc<SocketActivity>>) -> Self {
        let due = Instant::now() + app.rules.limits.stall;
        let inner = Inner { app, timer: ConnTimer::new(due), due, access: None, is_lost: false };
        Self {
            turn: AtomicU64::new(0),
            is_read: AtomicBool::new(true),
            is_blocked: AtomicBool::new(false),
            activity,
            inner: Mutex::new(inner),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Returns the application state for the next request.
    pub(super) fn current_app(&self) -> Arc<AppState> {
        let mut inner = self.inner();
        if let Some(newer) = inner.app.newer() {
            inner.app = workers::worker_copy(&newer);
        }
        inner.app.clone()
    }

    /// Returns a number that changes when a request begins and when its response was taken by hyper.
    pub(super) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    /// Whether no request is in progress in this turn.
    pub(super) fn is_between(turn: u64) -> bool {
        turn.is_multiple_of(2)
    }

    /// Marks the beginning of a request. Returns false if the connection is being closed.
    pub(super) fn begin_request(&self) -> bool {
        self.turn.fetch_add(1, Ordering::Relaxed);
        self.is_read.store(false, Ordering::Relaxed);
        self.activity.as_ref().is_none_or(|activity| activity.begin_request())
    }

    /// Marks that the response was taken by hyper; what is not yet written is in its buffer.
    pub(super) fn end_request(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.inner();
        (inner.access, inner.is_lost) = (None, false);
        let now = Instant::now();
        inner.due = now + IDLE;
        if let Some(activity) = &self.activity {
            activity.end_request(now);
        }
    }

    /// Marks that a replica has signed the request.
    pub(super) fn set_verified(&self) {
        if let Some(activity) = &self.activity {
            activity.set_verified();
        }
    }

    /// Marks that the request was read to its end.
    pub(super) fn mark_read(&self) {
        self.is_read.store(true, Ordering::Relaxed);
    }

    /// Whether the last request was read to its end.
    pub(super) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    /// Notes whether the client takes no more bytes. Returns the previous note.
    pub(super) fn set_blocked(&self, is_blocked: bool) -> bool {
        self.is_blocked.swap(is_blocked, Ordering::Relaxed)
    }

    /// Whether a response is still being written.
    pub(super) fn is_writing(&self) -> bool {
        !Self::is_between(self.turn()) || self.is_blocked.load(Ordering::Relaxed)
    }

    /// Sets the deadline of the client's next action.
    pub(super) fn give(&self, time: Duration) {
        self.inner().due = Instant::now() + time;
    }

    /// Ready when the deadline has passed.
    pub(super) fn poll_late(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.inner();
        let due = inner.due;
        inner.timer.poll_until(due, cx)
    }

    /// Sets the access to the stream of the response.
    pub(super) fn watch(&self, access: Box<dyn Access>) {
        self.inner().access = Some(access);
    }

    /// Ready when the client has lost access to its stream.
    pub(super) fn poll_lost(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.inner();
        let Some(access) = &mut inner.access else { return Poll::Pending };
        ready!(access.poll_lost(cx));
        inner.is_lost = true;
        Poll::Ready(())
    }

    /// Whether the client has lost access to its stream.
    pub(super) fn is_lost(&self) -> bool {
        self.inner().is_lost
    }
}

impl SocketTimer for ConnState {
    fn poll_until(&self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.inner().timer.poll_until(due, cx)
    }
}

//! Stream of events that outlives its connections.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use stayput_wire::sse::Event;
use tokio::sync::mpsc;

use super::{
    super::scope::Outlet,
    body::{Body, OnGone, Piece},
};

pub(super) struct Stream {
    number: u64,
    /// Whether events have ids, by which the stream can be resumed.
    ids: bool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    events: Vec<Bytes>,
    /// Number of events that were sent over any connection.
    sent: usize,
    live: Option<mpsc::UnboundedSender<Piece>>,
    over: bool,
}

impl Stream {
    pub(super) fn new(number: u64, ids: bool) -> Arc<Self> {
        Arc::new(Self { number, ids, inner: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the first event of 2025-11-25: only an id and the retry time.
    pub(super) fn prime(&self, retry: Duration) {
        self.push(Event::new("").with_retry(retry));
    }

    pub(super) fn push(&self, event: Event) {
        let mut inner = self.lock();
        if inner.over {
            return;
        }
        let id = format!("{}-{}", self.number, inner.events.len());
        let event = if self.ids { event.with_id(&id).unwrap() } else { event };
        let bytes = Bytes::from(event.encode());
        inner.events.push(bytes.clone());
        let live = inner.live.as_ref();
        if live.is_some_and(|live| live.send(Piece::Bytes(bytes)).is_ok()) {
            inner.sent = inner.events.len();
        }
    }

    /// Sends the stream over a connection from this event on.
    pub(super) fn attach(&self, from: usize, gone: OnGone) -> Body {
        let (send, receive) = mpsc::unbounded_channel();
        let mut inner = self.lock();
        for event in inner.events.iter().skip(from) {
            let _ = send.send(Piece::Bytes(event.clone()));
        }
        inner.sent = inner.events.len();
        if !inner.over {
            inner.live = Some(send);
        }
        Body::pieces(receive, gone)
    }

    /// Sends the stream over a connection from the end of the last one.
    pub(super) fn attach_where_left(&self, gone: OnGone) -> Body {
        let sent = self.lock().sent;
        self.attach(sent, gone)
    }

    /// Returns whether a client is connected.
    pub(super) fn is_attached(&self) -> bool {
        self.lock().live.as_ref().is_some_and(|live| !live.is_closed())
    }

    /// Closes the connection; the stream continues without one.
    pub(super) fn detach(&self) {
        self.lock().live = None;
    }

    /// Breaks the connection in the middle of an event.
    pub(super) fn cut(&self) {
        if let Some(live) = self.lock().live.take() {
            let _ = live.send(Piece::Bytes(Bytes::from_static(b"data: {\"jsonrpc\":")));
            let _ = live.send(Piece::Cut);
        }
    }

    /// Ends the stream.
    pub(super) fn finish(&self) {
        let mut inner = self.lock();
        inner.over = true;
        inner.live = None;
    }
}

impl Outlet for Stream {
    fn send(&self, text: String) {
        self.push(Event::new(text));
    }
}

/// Parses the numbers of stream and event from an event id.
pub(super) fn parse_id(id: &str) -> Option<(u64, usize)> {
    let (stream, event) = id.split_once('-')?;
    Some((stream.parse().ok()?, event.parse().ok()?))
}

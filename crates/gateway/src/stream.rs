//! A stream of events to a client, which it can take up again where it was cut off.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use stayput_core::{EventIds, InUse, Topic};
use stayput_wire::sse;

use crate::reply::Then;

/// The most bytes that are kept of one stream. A client that reads is far from it.
const KEPT: usize = 4 << 20;

/// The most streams that are kept of one connection after they ended.
const ENDED: usize = 32;

/// How long a client waits before it takes a stream up again.
const RETRY: Duration = Duration::from_secs(1);

/// How long a stream that nobody reads is kept up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a silent stream says that it is still there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// What is said on one stream, kept so that it can be said again.
pub(crate) struct Stream {
    topic: Topic,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Messages with their numbers, which begin with 1.
    events: VecDeque<Said>,
    bytes: usize,
    last: u64,
    ended: bool,
    /// Whoever reads. A second reader takes over from the first.
    reader: u64,
    reading: bool,
    waker: Option<Waker>,
}

/// One message, and what follows when somebody has read it.
struct Said {
    number: u64,
    text: Bytes,
    then: Option<Then>,
}

impl Stream {
    pub(crate) fn new(topic: Topic) -> Arc<Self> {
        Arc::new(Self { topic, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says something.
    pub(crate) fn push(&self, text: Bytes) {
        self.push_then(text, None);
    }

    /// Says something, and what follows when somebody has read it.
    pub(crate) fn push_then(&self, text: Bytes, then: Option<Then>) {
        let mut state = self.state();
        state.last += 1;
        state.bytes += text.len();
        let number = state.last;
        state.events.push_back(Said { number, text, then });
        while state.bytes > KEPT && state.events.len() > 1 {
            if let Some(old) = state.events.pop_front() {
                state.bytes -= old.text.len();
            }
        }
        wake(state);
    }

    /// Nothing more is said.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        wake(state);
    }

    /// Waits until nobody has read for a while, or it ended.
    pub(crate) async fn abandoned(&self) {
        loop {
            let before = self.state().reader;
            tokio::time::sleep(PATIENCE).await;
            let gone = |state: &State| state.ended || (!state.reading && state.reader == before);
            if gone(&self.state()) {
                return;
            }
        }
    }

    /// Whether somebody reads it.
    pub(crate) fn is_read(&self) -> bool {
        self.state().reading
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// Reads what was said after the event with this number.
    pub(crate) fn read_after(self: &Arc<Self>, after: u64, ids: &EventIds) -> Reading {
        let mut state = self.state();
        state.reader += 1;
        state.reading = true;
        let reader = state.reader;
        let waker = state.waker.take();
        drop(state);
        // Who read before ends now.
        if let Some(waker) = waker {
            waker.wake();
        }
        let stream = self.clone();
        let (ids, timer, kept) = (ids.clone(), None, None);
        Reading { stream, ids, reader, after, primed: false, timer, kept }
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.topic.stream)
    }
}

/// The body of an answer that is a stream.
pub(crate) struct Reading {
    stream: Arc<Stream>,
    ids: EventIds,
    reader: u64,
    after: u64,
    primed: bool,
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    /// While somebody reads, the session does not idle.
    #[allow(dead_code, reason = "it does its work when it is dropped")]
    kept: Option<InUse>,
}

impl Reading {
    /// Keeps a session in use for as long as somebody reads.
    pub(crate) fn keeping(mut self, session: Option<InUse>) -> Self {
        self.kept = session;
        self
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !std::mem::replace(&mut self.primed, true) {
            // A place to come back to, before anything was said.
            let id = self.ids.seal(&self.stream.topic, self.after);
            let event = sse::Event::new("").with_retry(RETRY).with_id(&id);
            return Poll::Ready(event.ok().map(|event| event.encode().into()));
        }
        let mut state = self.stream.state();
        if state.reader != self.reader {
            return Poll::Ready(None);
        }
        let next = state.events.iter_mut().find(|said| said.number > self.after);
        if let Some(Said { number, text, then }) = next {
            let (number, text, then) = (*number, text.clone(), then.take());
            drop(state);
            if let Some(then) = then {
                then();
            }
            self.after = number;
            let id = self.ids.seal(&self.stream.topic, number);
            let event = sse::Event::new(text).with_id(&id);
            return Poll::Ready(event.ok().map(|event| event.encode().into()));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_sign_of_life(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(SIGN_OF_LIFE)));
        let ready = timer.as_mut().poll(cx);
        if ready.is_ready() {
            self.timer = None;
        }
        ready
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.stream.state();
        if state.reader == self.reader {
            state.reading = false;
        }
    }
}

impl Body for Reading {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.next(cx) {
            Poll::Ready(bytes) => {
                self.timer = None;
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Poll::Pending if self.poll_sign_of_life(cx).is_ready() => {
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(sse::KEEP_ALIVE)))))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

/// The streams of one connection, by number. Boxed, because most connections never have one.
#[derive(Default)]
pub(crate) struct Streams(Mutex<Option<Box<Numbered>>>);

#[derive(Default)]
struct Numbered {
    streams: HashMap<u64, Arc<Stream>>,
    order: VecDeque<u64>,
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, Option<Box<Numbered>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a stream, so that it can be taken up again. Of those that ended the oldest are forgotten.
    pub(crate) fn keep(&self, stream: &Arc<Stream>) {
        let mut lock = self.lock();
        let numbered = lock.get_or_insert_default();
        let number = stream.topic.stream;
        numbered.streams.insert(number, stream.clone());
        numbered.order.push_back(number);
        while numbered.order.len() > ENDED {
            let ended =
                |number: &u64| numbered.streams.get(number).is_none_or(|stream| stream.has_ended());
            let Some(at) = numbered.order.iter().position(ended) else { break };
            if let Some(number) = numbered.order.remove(at) {
                numbered.streams.remove(&number);
            }
        }
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Stream>> {
        self.lock().as_ref()?.streams.get(&number).cloned()
    }

    pub(crate) fn close(&self) {
        let all = self.lock().take();
        for stream in all.into_iter().flat_map(|all| all.streams.into_values()) {
            stream.end();
        }
    }
}

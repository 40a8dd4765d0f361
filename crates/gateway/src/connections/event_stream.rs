//! A stream of events to a client, which it can take up again where it was cut off.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use stayput_core::{ActiveSession, EventIds, Topic};
use stayput_wire::sse;
use tokio::sync::Notify;

use crate::reply::{AfterWrite, EventBody};

/// The most bytes that are kept of one stream. A client that reads is far from it.
const KEPT: usize = 4 << 20;

/// How long a client waits before it takes a stream up again.
const RETRY: Duration = Duration::from_secs(1);

/// How long a stream that nobody reads is kept up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a silent stream says that it is still there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// What is said on one stream, kept so that it can be said again.
pub(crate) struct EventStream {
    /// What its events are numbered by; none if it is read once.
    topic: Option<Topic>,
    /// The one server that speaks on it; none if several may.
    server: Option<Arc<str>>,
    state: Mutex<State>,
    /// Somebody has read of a stream that is read once.
    read: Notify,
}

#[derive(Default)]
struct State {
    /// Messages with their numbers, which begin with 1.
    events: VecDeque<Said>,
    bytes: usize,
    last: u64,
    ended: bool,
    /// It ended long ago, and nothing of it is kept.
    forgotten: bool,
    /// Whoever reads. A second reader takes over from the first.
    reader: u64,
    reading: bool,
    /// While somebody reads, this session does not idle.
    kept: Option<ActiveSession>,
    waker: Option<Waker>,
    /// It is read once: what was read is not kept, and what was not is never dropped.
    once: bool,
    /// Who does not read is waited for without end: it may have been stopped, and goes on some day.
    patient: bool,
    /// What follows when a stream that is read once is over, or nobody reads it any more.
    gone: Option<AfterWrite>,
}

/// One message, and what follows when somebody has read it.
struct Said {
    number: u64,
    text: Bytes,
    then: Option<AfterWrite>,
}

impl State {
    /// The first message after this number. What is read once is taken out.
    fn after(&mut self, number: u64) -> Option<(u64, Bytes, Option<AfterWrite>)> {
        if self.once {
            let Said { number, text, then } = self.events.pop_front()?;
            self.bytes -= text.len();
            return Some((number, text, then));
        }
        let next = self.events.iter_mut().find(|said| said.number > number)?;
        Some((next.number, next.text.clone(), next.then.take()))
    }
}

impl EventStream {
    pub(crate) fn new(topic: Topic, server: Option<Arc<str>>) -> Arc<Self> {
        Arc::new(Self { topic: Some(topic), server, state: Mutex::default(), read: Notify::new() })
    }

    /// A stream that is read once, as it is said, and what follows when it is over.
    pub(crate) fn once(server: Option<Arc<str>>, gone: AfterWrite) -> Arc<Self> {
        let state = State { once: true, gone: Some(gone), ..State::default() };
        Arc::new(Self { topic: None, server, state: Mutex::new(state), read: Notify::new() })
    }

    /// A stream that is read once, by somebody who is waited for for as long as it is there.
    pub(crate) fn line() -> Arc<Self> {
        let state = State { once: true, patient: true, ..State::default() };
        let state = Mutex::new(state);
        Arc::new(Self { topic: None, server: None, state, read: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says something.
    pub(crate) fn push(&self, text: Bytes) {
        self.push_then(text, None);
    }

    /// Says something, and what follows when somebody has read it.
    pub(crate) fn push_then(&self, text: Bytes, then: Option<AfterWrite>) {
        let mut state = self.state();
        state.last += 1;
        state.bytes += text.len();
        let number = state.last;
        state.events.push_back(Said { number, text, then });
        while !state.once && state.bytes > KEPT && state.events.len() > 1 {
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
        let gone = state.gone.take();
        wake(state);
        self.read.notify_waiters();
        if let Some(gone) = gone {
            gone();
        }
    }

    /// Waits until a stream that is read once has room for more. Who does not read for too long is not
    /// waited for: the stream is over.
    pub(crate) async fn room(&self) {
        loop {
            let read = self.read.notified();
            tokio::pin!(read);
            read.as_mut().enable();
            let patient = {
                let state = self.state();
                if !state.once || state.ended || state.bytes <= KEPT {
                    return;
                }
                state.patient
            };
            if patient {
                read.await;
            } else if tokio::time::timeout(PATIENCE, read).await.is_err() {
                self.state().events.clear();
                self.end();
            }
        }
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

    /// How much of it is kept.
    pub(crate) fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// Keeps nothing of it any more, unless somebody reads it; says whether nothing is kept.
    pub(crate) fn forget(&self) -> bool {
        let mut state = self.state();
        if state.reading {
            return false;
        }
        state.events.clear();
        state.bytes = 0;
        state.forgotten = true;
        true
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        self.state().forgotten
    }

    /// What it is found by, if it can be taken up again.
    pub(crate) fn number(&self) -> Option<u64> {
        self.topic.as_ref().map(|topic| topic.stream)
    }

    /// The one server that speaks on it; none if several may.
    pub(crate) fn server(&self) -> Option<&Arc<str>> {
        self.server.as_ref()
    }

    /// Whether somebody reads it.
    pub(crate) fn is_read(&self) -> bool {
        self.state().reading
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// Reads what was said after the event with this number.
    pub(crate) fn read_after(self: &Arc<Self>, after: u64, ids: &EventIds) -> StreamReader {
        self.read(after, Manner::Numbered { ids: ids.clone(), primed: false })
    }

    /// Reads all that is said, as in 2024-11-05: the first event tells where to post to.
    pub(crate) fn read_all(self: &Arc<Self>, endpoint: String) -> StreamReader {
        self.read(0, Manner::Named { endpoint: Some(endpoint) })
    }

    /// Reads all that is said, a line each.
    pub(crate) fn read_lines(self: &Arc<Self>) -> StreamReader {
        self.read(0, Manner::Lines)
    }

    /// Whoever reads keeps this session in use from now on, if any was kept so far.
    pub(crate) fn keep(&self, session: ActiveSession) {
        let mut state = self.state();
        let kept = state.kept.is_some() && state.reading;
        let before = if kept { state.kept.replace(session) } else { Some(session) };
        drop(state);
        drop(before);
    }

    fn read(self: &Arc<Self>, after: u64, manner: Manner) -> StreamReader {
        let mut state = self.state();
        state.reader += 1;
        state.reading = true;
        let reader = state.reader;
        // Who read before ends now.
        wake(state);
        StreamReader { stream: self.clone(), manner, reader, after, timer: None }
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.number())
    }
}

/// The body of an answer that is a stream.
pub(crate) struct StreamReader {
    stream: Arc<EventStream>,
    manner: Manner,
    reader: u64,
    after: u64,
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
}

/// How events are written.
enum Manner {
    /// With ids to come back to, of which the first is told before anything was said.
    Numbered { ids: EventIds, primed: bool },
    /// With names, as in 2024-11-05.
    Named { endpoint: Option<String> },
    /// As they are, each on a line.
    Lines,
}

impl Manner {
    /// What comes before everything else.
    fn opening(&mut self, topic: Option<&Topic>, after: u64) -> Option<sse::Event> {
        match self {
            Self::Numbered { primed: true, .. } => None,
            Self::Numbered { ids, primed } => {
                *primed = true;
                sse::Event::new("").with_retry(RETRY).with_id(&ids.seal(topic?, after)).ok()
            }
            Self::Named { endpoint } => {
                sse::Event::new(endpoint.take()?).with_name(sse::ENDPOINT).ok()
            }
            Self::Lines => None,
        }
    }

    fn written(&self, topic: Option<&Topic>, number: u64, text: Bytes) -> Option<Bytes> {
        let event = match self {
            Self::Numbered { ids, .. } => {
                sse::Event::new(text).with_id(&ids.seal(topic?, number)).ok()
            }
            Self::Named { .. } => sse::Event::new(text).with_name(sse::MESSAGE).ok(),
            Self::Lines => {
                let mut line = Vec::with_capacity(text.len() + 1);
                line.extend_from_slice(&text);
                stayput_wire::end_line(&mut line);
                return Some(line.into());
            }
        };
        event.map(|event| event.encode().into())
    }
}

impl StreamReader {
    /// Keeps a session in use for as long as somebody reads.
    pub(crate) fn keeping(self, session: Option<ActiveSession>) -> Self {
        let before = std::mem::replace(&mut self.stream.state().kept, session);
        drop(before);
        self
    }

    /// What is to be written next; nothing after the end.
    pub(crate) fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let topic = self.stream.topic.as_ref();
        if let Some(opening) = self.manner.opening(topic, self.after) {
            return Poll::Ready(Some(opening.encode().into()));
        }
        let mut state = self.stream.state();
        if state.reader != self.reader {
            return Poll::Ready(None);
        }
        if let Some((number, text, then)) = state.after(self.after) {
            drop(state);
            self.stream.read.notify_waiters();
            if let Some(then) = then {
                then();
            }
            self.after = number;
            return Poll::Ready(self.manner.written(topic, number, text));
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

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut state = self.stream.state();
        if state.reader == self.reader {
            state.reading = false;
            let (gone, kept) = (state.gone.take(), state.kept.take());
            drop(state);
            drop(kept);
            if let Some(gone) = gone {
                gone();
            }
        }
    }
}

impl EventBody for StreamReader {
    fn server(&self) -> Option<Arc<str>> {
        self.stream.server.clone()
    }
}

impl Body for StreamReader {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;

    use super::*;

    fn text(frame: Option<Option<Result<Frame<Bytes>, std::convert::Infallible>>>) -> String {
        let data = frame.unwrap().unwrap().unwrap().into_data().unwrap();
        String::from_utf8(data.to_vec()).unwrap()
    }

    /// What is read once is bounded by who reads it: nothing is dropped, and who speaks waits.
    #[tokio::test]
    async fn who_speaks_waits_for_who_reads() {
        let gone = Arc::new(AtomicBool::new(false));
        let told = gone.clone();
        let stream = EventStream::once(None, Box::new(move || told.store(true, Ordering::Relaxed)));
        let mut reading = stream.read_all("/here".to_owned());
        assert_eq!(text(reading.frame().now_or_never()), "event: endpoint\ndata: /here\n\n");
        for _ in 0..2 {
            assert!(stream.room().now_or_never().is_some());
            stream.push(vec![b'x'; KEPT].into());
        }
        let room = stream.room();
        tokio::pin!(room);
        assert!(room.as_mut().now_or_never().is_none(), "it is full");
        assert!(text(reading.frame().now_or_never()).starts_with("event: message\ndata: xxx"));
        assert!(room.as_mut().now_or_never().is_some(), "there is room again");
        assert!(text(reading.frame().now_or_never()).len() > KEPT, "nothing was dropped");
        assert!(reading.frame().now_or_never().is_none() && !gone.load(Ordering::Relaxed));
        drop(reading);
        assert!(gone.load(Ordering::Relaxed));
    }
}

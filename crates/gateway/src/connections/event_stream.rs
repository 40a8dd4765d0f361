//! Event stream to a client, which the client can resume after a disconnect.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{Arc, MutexGuard},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use stayput_core::{ActiveSession, EventIds, Owner, Topic};
use stayput_sync::Mutex;
use stayput_wire::sse;
use tokio::sync::Notify;

use crate::{
    observe::session_stats::ConnectedSession,
    reply::{AfterWrite, AfterWriteSink, EventBody},
};

/// Largest number of bytes that are kept of one stream. A client that reads stays far below it.
const MAX_BUFFERED_BYTES: usize = 4 << 20;

/// Delay before a client reconnects to a stream (SSE `retry`).
const RETRY: Duration = Duration::from_secs(1);

/// Time that a stream without a reader is kept.
const UNREAD_STREAM_TTL: Duration = Duration::from_secs(30);

/// Interval of keep-alive comments on a silent stream.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Buffered messages of one stream, kept for a resume.
pub(crate) struct EventStream {
    /// Identity that event ids are derived from; `None` if the stream is read once.
    topic: Option<Topic>,
    /// The one server that writes to the stream; `None` if several may.
    server: Option<Arc<str>>,
    state: Mutex<State>,
    /// Signalled when a message of a read-once stream was read.
    read: Notify,
}

#[derive(Default)]
struct State {
    /// Messages with their numbers, which begin with 1.
    events: VecDeque<QueuedEvent>,
    bytes: usize,
    last: u64,
    /// Number of the last message that was taken by a reader.
    taken: u64,
    ended: bool,
    /// The stream ended long ago, and its messages were dropped.
    cleared: bool,
    /// Number of the current reader. A new reader replaces the previous one.
    reader: u64,
    reading: bool,
    /// Keeps this session from going idle while a reader exists.
    kept: Option<ConnectedSession>,
    waker: Option<Waker>,
    /// The stream is read once: a message is dropped after it was read, and never before.
    once: bool,
    /// A writer waits for the reader without a time limit: the reader's process may be suspended and continue later.
    patient: bool,
    /// Action that runs when a read-once stream ends or loses its reader.
    gone: Option<Box<dyn FnOnce() + Send>>,
}

/// One message, and the action that runs after it was read.
struct QueuedEvent {
    number: u64,
    text: Bytes,
    then: Option<AfterWrite>,
}

impl State {
    /// Returns the first message after this number. A read-once stream removes it.
    fn after(&mut self, number: u64) -> Option<(u64, Bytes, Option<AfterWrite>)> {
        if self.once {
            let QueuedEvent { number, text, then } = self.events.pop_front()?;
            self.bytes -= text.len();
            return Some((number, text, then));
        }
        let next = self.events.iter_mut().find(|said| said.number > number)?;
        self.taken = self.taken.max(next.number);
        Some((next.number, next.text.clone(), next.then.take()))
    }
}

impl EventStream {
    pub(crate) fn new(topic: Topic, server: Option<Arc<str>>) -> Arc<Self> {
        Arc::new(Self::empty(topic, server))
    }

    fn empty(topic: Topic, server: Option<Arc<str>>) -> Self {
        Self { topic: Some(topic), server, state: Mutex::default(), read: Notify::new() }
    }

    /// Builds a stream of another replica from its events and their numbers, in order. `None` if there are none.
    pub(crate) fn restored(
        topic: Topic,
        server: Option<Arc<str>>,
        events: Vec<(u64, Bytes)>,
    ) -> Option<Arc<Self>> {
        let (last, _) = *events.last()?;
        let bytes = events.iter().map(|(_, text)| text.len()).sum();
        let events =
            events.into_iter().map(|(number, text)| QueuedEvent { number, text, then: None });
        let state = State { events: events.collect(), bytes, last, ..State::default() };
        Some(Arc::new(Self { state: Mutex::new(state), ..Self::empty(topic, server) }))
    }

    /// Creates a read-once stream. `gone` runs when the stream ends or loses its reader.
    pub(crate) fn once(server: Option<Arc<str>>, gone: Box<dyn FnOnce() + Send>) -> Arc<Self> {
        let state = State { once: true, gone: Some(gone), ..State::default() };
        Arc::new(Self { topic: None, server, state: Mutex::new(state), read: Notify::new() })
    }

    /// Creates a read-once stream whose writers wait for the reader without a time limit.
    pub(crate) fn line() -> Arc<Self> {
        let state = State { once: true, patient: true, ..State::default() };
        let state = Mutex::new(state);
        Arc::new(Self { topic: None, server: None, state, read: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Appends a message.
    pub(crate) fn push(&self, text: Bytes) {
        self.push_then(text, None);
    }

    /// Appends a message with an action that runs after the message was read.
    pub(crate) fn push_then(&self, text: Bytes, then: Option<AfterWrite>) {
        let mut state = self.state();
        state.last += 1;
        state.bytes += text.len();
        let number = state.last;
        state.events.push_back(QueuedEvent { number, text, then });
        while !state.once && state.bytes > MAX_BUFFERED_BYTES && state.events.len() > 1 {
            if let Some(old) = state.events.pop_front() {
                state.bytes -= old.text.len();
            }
        }
        wake(state);
    }

    /// Ends the stream.
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

    /// Waits until a read-once stream has room for more. If the reader does not read for too long, the stream ends.
    pub(crate) async fn room(&self) {
        loop {
            let read = self.read.notified();
            tokio::pin!(read);
            read.as_mut().enable();
            let patient = {
                let state = self.state();
                if !state.once || state.ended || state.bytes <= MAX_BUFFERED_BYTES {
                    return;
                }
                state.patient
            };
            if patient {
                read.await;
            } else if tokio::time::timeout(UNREAD_STREAM_TTL, read).await.is_err() {
                self.state().events.clear();
                self.end();
            }
        }
    }

    /// Waits until the stream had no reader for a while, or has ended.
    pub(crate) async fn abandoned(&self) {
        loop {
            let before = self.state().reader;
            tokio::time::sleep(UNREAD_STREAM_TTL).await;
            let gone = |state: &State| state.ended || (!state.reading && state.reader == before);
            if gone(&self.state()) {
                return;
            }
        }
    }

    /// Number of bytes that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// Drops all messages, unless a reader exists. Returns whether they were dropped.
    pub(crate) fn clear(&self) -> bool {
        let mut state = self.state();
        if state.reading {
            return false;
        }
        state.events.clear();
        state.bytes = 0;
        state.cleared = true;
        true
    }

    pub(crate) fn is_cleared(&self) -> bool {
        self.state().cleared
    }

    /// Whether no reader has taken the last message.
    pub(crate) fn is_unread(&self) -> bool {
        let state = self.state();
        state.events.back().is_some_and(|event| event.number > state.taken)
    }

    /// Whether a message after the event with this number is kept.
    pub(crate) fn has_after(&self, number: u64) -> bool {
        self.state().events.back().is_some_and(|event| event.number > number)
    }

    /// Returns the messages that are kept, with their numbers.
    pub(crate) fn events(&self) -> Vec<(u64, Bytes)> {
        self.state().events.iter().map(|event| (event.number, event.text.clone())).collect()
    }

    /// Key by which clients find the stream; `None` if it cannot be resumed.
    pub(crate) fn topic(&self) -> Option<&Topic> {
        self.topic.as_ref()
    }

    /// Number by which the stream is found; `None` if it cannot be resumed.
    pub(crate) fn number(&self) -> Option<u64> {
        self.topic.as_ref().map(|topic| topic.stream)
    }

    /// Owner of the stream; `None` if it cannot be resumed.
    pub(crate) fn owner(&self) -> Option<&Owner> {
        self.topic.as_ref().map(|topic| &topic.owner)
    }

    /// The one server that writes to the stream; `None` if several may.
    pub(crate) fn server(&self) -> Option<&Arc<str>> {
        self.server.as_ref()
    }

    /// Whether a client reads the stream now.
    pub(crate) fn is_read(&self) -> bool {
        self.state().reading
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// Reads the messages after the event with this number.
    pub(crate) fn read_after(self: &Arc<Self>, after: u64, ids: &EventIds) -> StreamReader {
        self.read(after, EventFormat::Numbered { ids: ids.clone(), primed: false })
    }

    /// Reads all messages in the 2024-11-05 format: the first event holds the address to post to.
    pub(crate) fn read_all(self: &Arc<Self>, endpoint: String) -> StreamReader {
        self.read(0, EventFormat::Named { endpoint: Some(endpoint) })
    }

    /// Reads all messages, one per line.
    pub(crate) fn read_lines(self: &Arc<Self>) -> StreamReader {
        self.read(0, EventFormat::Lines)
    }

    /// Replaces the session that the reader keeps in use, if it keeps one.
    pub(crate) fn keep(&self, session: ActiveSession) {
        let mut state = self.state();
        let kept = state.kept.is_some() && state.reading;
        let session = ConnectedSession::from(session);
        let before = if kept { state.kept.replace(session) } else { Some(session) };
        drop(state);
        drop(before);
    }

    fn read(self: &Arc<Self>, after: u64, format: EventFormat) -> StreamReader {
        let mut state = self.state();
        state.reader += 1;
        state.reading = true;
        let reader = state.reader;
        // Wakes the previous reader, which ends now.
        wake(state);
        StreamReader { stream: self.clone(), format, reader, after, timer: None, sink: None }
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

/// Body of a streamed answer.
pub(crate) struct StreamReader {
    stream: Arc<EventStream>,
    format: EventFormat,
    reader: u64,
    after: u64,
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    /// Takes the actions of the messages. `None` if they run when the messages are read.
    sink: Option<AfterWriteSink>,
}

/// Output format of events.
enum EventFormat {
    /// SSE with event ids for a resume. The first id is sent before any message.
    Numbered { ids: EventIds, primed: bool },
    /// SSE with event names, as in 2024-11-05.
    Named { endpoint: Option<String> },
    /// Plain messages, one per line.
    Lines,
}

impl EventFormat {
    /// First event of the stream.
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
    /// Keeps a session in use while the reader exists.
    pub(crate) fn keeping(self, session: Option<ActiveSession>) -> Self {
        let before =
            std::mem::replace(&mut self.stream.state().kept, session.map(ConnectedSession::from));
        drop(before);
        self
    }

    /// Returns the next bytes to write; `None` at the end.
    pub(crate) fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let topic = self.stream.topic.as_ref();
        if let Some(opening) = self.format.opening(topic, self.after) {
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
                match &self.sink {
                    Some(sink) => sink(then),
                    None => then.run(),
                }
            }
            self.after = number;
            return Poll::Ready(self.format.written(topic, number, text));
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

    fn defer(&mut self, sink: AfterWriteSink) -> bool {
        self.sink = Some(sink);
        true
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

    /// A read-once stream is bounded by its reader: no message is dropped, and the writer waits.
    #[tokio::test]
    async fn writer_waits_for_the_reader() {
        let gone = Arc::new(AtomicBool::new(false));
        let flag = gone.clone();
        let stream = EventStream::once(None, Box::new(move || flag.store(true, Ordering::Relaxed)));
        let mut reading = stream.read_all("/here".to_owned());
        assert_eq!(text(reading.frame().now_or_never()), "event: endpoint\ndata: /here\n\n");
        for _ in 0..2 {
            assert!(stream.room().now_or_never().is_some());
            stream.push(vec![b'x'; MAX_BUFFERED_BYTES].into());
        }
        let room = stream.room();
        tokio::pin!(room);
        assert!(room.as_mut().now_or_never().is_none(), "it is full");
        assert!(text(reading.frame().now_or_never()).starts_with("event: message\ndata: xxx"));
        assert!(room.as_mut().now_or_never().is_some(), "there is room again");
        assert!(
            text(reading.frame().now_or_never()).len() > MAX_BUFFERED_BYTES,
            "nothing was dropped"
        );
        assert!(reading.frame().now_or_never().is_none() && !gone.load(Ordering::Relaxed));
        drop(reading);
        assert!(gone.load(Ordering::Relaxed));
    }
}

//! The streams that clients can take up again, and how much is kept of those that ended.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::connections::event_stream::EventStream;

/// The most streams that are kept of one connection after they ended.
const ENDED: usize = 32;

/// The most bytes of them. The last one is kept, however large it is.
const EACH: usize = 4 << 20;

/// The most bytes of those of all connections.
const ALL: usize = 64 << 20;

/// The streams of one connection, the oldest first. There are few, and of most connections none.
#[derive(Default)]
pub(crate) struct ConnectionStreams(Mutex<Vec<Arc<EventStream>>>);

impl ConnectionStreams {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<EventStream>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Keeps a stream, so that it can be taken up again.
    pub(crate) fn keep(&self, stream: &Arc<EventStream>) {
        let mut streams = self.lock();
        streams.push(stream.clone());
        tidy(&mut streams);
    }

    /// A stream has ended: of those that did the oldest are forgotten, if there are too many.
    pub(crate) fn tidy(&self) {
        tidy(&mut self.lock());
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<EventStream>> {
        let streams = self.lock();
        let found = streams.iter().find(|stream| stream.number() == Some(number));
        found.filter(|stream| !stream.is_forgotten()).cloned()
    }

    pub(crate) fn close(&self) {
        let all = std::mem::take(&mut *self.lock());
        for stream in all {
            stream.end();
        }
    }
}

/// Forgets the oldest of those that ended, if there are too many.
fn tidy(streams: &mut Vec<Arc<EventStream>>) {
    let ended = streams.iter().filter(|stream| stream.has_ended()).map(|stream| stream.bytes());
    let (mut count, mut bytes) = ended.fold((0, 0), |(count, sum), it| (count + 1, sum + it));
    streams.retain(|stream| {
        let enough = count <= 1 || (count <= ENDED && bytes <= EACH);
        if enough || !stream.has_ended() {
            return true;
        }
        count -= 1;
        bytes -= stream.bytes().min(bytes);
        false
    });
}

/// The streams of all connections that ended, the oldest first.
#[derive(Default)]
pub(crate) struct StreamCache(Mutex<CachedStream>);

#[derive(Default)]
struct CachedStream {
    streams: VecDeque<(Weak<EventStream>, usize)>,
    bytes: usize,
    /// At so many those that nobody keeps any more are taken out.
    crowded: usize,
}

impl StreamCache {
    /// A stream has ended. If there is too much of all, the oldest that nobody reads are forgotten.
    pub(crate) fn put(&self, stream: &Arc<EventStream>) {
        self.put_within(stream, ALL);
    }

    fn put_within(&self, stream: &Arc<EventStream>, limit: usize) {
        let mut shelved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = stream.bytes();
        shelved.streams.push_back((Arc::downgrade(stream), bytes));
        shelved.bytes += bytes;
        if shelved.bytes > limit || shelved.streams.len() > shelved.crowded {
            shelved.streams.retain(|(stream, _)| stream.strong_count() > 0);
            shelved.bytes = shelved.streams.iter().map(|(_, bytes)| bytes).sum();
            shelved.crowded = 1_024.max(2 * shelved.streams.len());
        }
        // The one that has just ended is about to be read.
        for _ in 1..shelved.streams.len() {
            if shelved.bytes <= limit {
                return;
            }
            let Some((oldest, bytes)) = shelved.streams.pop_front() else { return };
            if oldest.upgrade().is_none_or(|oldest| oldest.forget()) {
                shelved.bytes -= bytes;
            } else {
                shelved.streams.push_back((oldest, bytes));
            }
        }
    }
}

impl fmt::Debug for StreamCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shelved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "StreamCache({} streams, {} bytes)", shelved.streams.len(), shelved.bytes)
    }
}

#[cfg(test)]
mod tests {
    use stayput_core::{Owner, SessionId, Timestamp, Topic};

    use super::*;

    fn ended(number: u64, bytes: usize) -> Arc<EventStream> {
        let session = SessionId::generate(Timestamp::from_millis(1));
        let topic = Topic { owner: Owner::local(), session, stream: number };
        let stream = EventStream::new(topic, None);
        stream.push(vec![b'x'; bytes].into());
        stream.end();
        stream
    }

    #[test]
    fn of_one_connection_the_oldest_go_first_and_the_last_one_never() {
        let streams = ConnectionStreams::default();
        for number in 0..100 {
            streams.keep(&ended(number, 10));
        }
        assert!(streams.get(67).is_none() && streams.get(68).is_some());
        streams.keep(&ended(100, EACH - 15));
        assert!(streams.get(98).is_none() && streams.get(99).is_some());
        streams.keep(&ended(101, 2 * EACH));
        assert!(streams.get(100).is_none() && streams.get(101).is_some());
    }

    #[test]
    fn what_has_not_ended_is_never_forgotten() {
        let streams = ConnectionStreams::default();
        let session = SessionId::generate(Timestamp::from_millis(1));
        let live = EventStream::new(Topic { owner: Owner::local(), session, stream: 7 }, None);
        live.push(vec![b'x'; EACH].into());
        streams.keep(&live);
        for number in 100..200 {
            streams.keep(&ended(number, EACH));
        }
        assert!(streams.get(7).is_some());
    }

    #[test]
    fn of_all_connections_the_oldest_that_nobody_reads_are_forgotten() {
        let shelf = StreamCache::default();
        let all: Vec<_> = (0..10).map(|number| ended(number, 10)).collect();
        let ids = stayput_core::EventIds::new(&[3; 32]);
        let reading = all[1].read_after(0, &ids);
        for stream in &all {
            shelf.put_within(stream, 50);
        }
        let forgotten: Vec<_> = all.iter().map(|stream| stream.is_forgotten()).collect();
        let expected = [true, false, true, true, true, true, false, false, false, false];
        assert_eq!(forgotten, expected);
        drop(reading);
    }

    #[test]
    fn what_nobody_keeps_is_not_counted() {
        let shelf = StreamCache::default();
        let first = ended(0, 10);
        shelf.put_within(&first, 50);
        for number in 1..100 {
            shelf.put_within(&ended(number, 10), 50);
        }
        assert!(!first.is_forgotten());
        assert!(shelf.0.lock().unwrap().streams.len() < 10);
    }
}

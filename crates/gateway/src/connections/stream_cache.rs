//! Streams that clients can resume, and the limits for those that ended.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Weak},
};

use stayput_core::Owner;
use stayput_sync::Mutex;

use crate::connections::event_stream::EventStream;

/// Largest number of ended streams that are kept per connection.
const ENDED: usize = 32;

/// Largest number of bytes of those. The last stream is kept, however large it is.
const EACH: usize = 4 << 20;

/// Largest number of bytes of the ended streams of all connections.
const ALL: usize = 64 << 20;

/// Streams of one connection, the oldest first. There are few; most connections have none.
#[derive(Default)]
pub(crate) struct ConnectionStreams(Mutex<Vec<Arc<EventStream>>>);

impl ConnectionStreams {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Keeps a stream for a resume.
    pub(crate) fn keep(&self, stream: &Arc<EventStream>) {
        let mut streams = self.0.lock();
        streams.push(stream.clone());
        tidy(&mut streams);
    }

    /// Drops the oldest ended streams if there are too many. Called after a stream ended.
    pub(crate) fn tidy(&self) {
        tidy(&mut self.0.lock());
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<EventStream>> {
        let streams = self.0.lock();
        let found = streams.iter().find(|stream| stream.number() == Some(number));
        found.filter(|stream| !stream.is_cleared()).cloned()
    }

    /// Returns the streams whose last message no reader has taken, the oldest first.
    pub(crate) fn unread(&self) -> Vec<Arc<EventStream>> {
        self.0.lock().iter().filter(|stream| stream.is_unread()).cloned().collect()
    }

    /// Whether a call writes to one of the streams. `listen_stream` belongs to no call.
    pub(crate) fn has_call(&self, listen_stream: Option<&Arc<EventStream>>) -> bool {
        let is_other =
            |it: &&Arc<EventStream>| listen_stream.is_none_or(|own| !Arc::ptr_eq(own, it));
        self.0.lock().iter().filter(is_other).any(|stream| !stream.has_ended())
    }

    pub(crate) fn close(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        for stream in all {
            stream.end();
        }
    }
}

/// Drops the oldest ended streams if there are too many.
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

/// Ended streams of all connections, the oldest first.
#[derive(Default)]
pub(crate) struct StreamCache(Mutex<CachedStream>);

#[derive(Default)]
struct CachedStream {
    streams: VecDeque<Cached>,
    bytes: usize,
    /// Number of entries at which dropped streams are pruned.
    crowded: usize,
}

/// Ended stream of an owner, with its size.
struct Cached {
    stream: Weak<EventStream>,
    owner: Option<Owner>,
    bytes: usize,
}

impl StreamCache {
    /// Adds a stream that has ended. If all of them together are too large, the oldest without a reader are dropped, of
    /// the owner that has most.
    pub(crate) fn put(&self, stream: &Arc<EventStream>) {
        self.put_within(stream, ALL);
    }

    fn put_within(&self, stream: &Arc<EventStream>, limit: usize) {
        let mut cache = self.0.lock();
        let bytes = stream.bytes();
        let owner = stream.owner().cloned();
        cache.streams.push_back(Cached { stream: Arc::downgrade(stream), owner, bytes });
        cache.bytes += bytes;
        if cache.bytes > limit || cache.streams.len() > cache.crowded {
            cache.streams.retain(|it| it.stream.strong_count() > 0);
            cache.bytes = cache.streams.iter().map(|it| it.bytes).sum();
            cache.crowded = 1_024.max(2 * cache.streams.len());
        }
        if cache.bytes > limit {
            cache.shrink(limit);
        }
    }
}

impl CachedStream {
    /// Drops streams until the limit is kept. The stream that has just ended is kept: its client is about to read it.
    fn shrink(&mut self, limit: usize) {
        let mut owners: HashMap<Option<Owner>, usize> = HashMap::new();
        for it in &self.streams {
            *owners.entry(it.owner.clone()).or_default() += it.bytes;
        }
        let Some(last) = self.streams.pop_back() else { return };
        let mut read = Vec::new();
        while self.bytes > limit {
            let heaviest = owners.iter().max_by_key(|(_, bytes)| **bytes);
            let Some(heaviest) = heaviest.map(|(owner, _)| owner.clone()) else { break };
            let Some(at) = self.streams.iter().position(|it| it.owner == heaviest) else {
                owners.remove(&heaviest);
                continue;
            };
            let Some(oldest) = self.streams.remove(at) else { break };
            if oldest.stream.upgrade().is_none_or(|stream| stream.clear()) {
                self.bytes -= oldest.bytes;
                owners.entry(heaviest).and_modify(|bytes| *bytes -= oldest.bytes);
            } else {
                read.push(oldest);
            }
        }
        self.streams.extend(read);
        self.streams.push_back(last);
    }
}

impl fmt::Debug for StreamCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = self.0.lock();
        write!(f, "StreamCache({} streams, {} bytes)", cache.streams.len(), cache.bytes)
    }
}

#[cfg(test)]
mod tests {
    use stayput_core::{SessionId, Timestamp, Topic};

    use super::*;

    fn ended(number: u64, bytes: usize) -> Arc<EventStream> {
        ended_of(Owner::local(), number, bytes)
    }

    fn ended_of(owner: Owner, number: u64, bytes: usize) -> Arc<EventStream> {
        let session = SessionId::generate(Timestamp::from_millis(1));
        let topic = Topic { owner, session, stream: number };
        let stream = EventStream::new(topic, None);
        stream.push(vec![b'x'; bytes].into());
        stream.end();
        stream
    }

    #[test]
    fn oldest_streams_of_a_connection_are_dropped_but_never_the_last() {
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
    fn live_stream_is_never_dropped() {
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
    fn oldest_streams_without_a_reader_are_dropped() {
        let cache = StreamCache::default();
        let all: Vec<_> = (0..10).map(|number| ended(number, 10)).collect();
        let ids = stayput_core::EventIds::new(&[3; 32]);
        let reading = all[1].read_after(0, &ids);
        for stream in &all {
            cache.put_within(stream, 50);
        }
        let cleared: Vec<_> = all.iter().map(|stream| stream.is_cleared()).collect();
        let expected = [true, false, true, true, true, true, false, false, false, false];
        assert_eq!(cleared, expected);
        drop(reading);
    }

    /// R170: an owner with many streams takes no room from another.
    #[test]
    fn streams_of_the_owner_with_most_are_dropped_first() {
        let cache = StreamCache::default();
        let bob = Owner::verified("test", "bob").unwrap();
        let bobs = ended_of(bob, 0, 20);
        cache.put_within(&bobs, 50);
        let anns: Vec<_> = (1..10).map(|number| ended(number, 10)).collect();
        anns.iter().for_each(|stream| cache.put_within(stream, 50));
        assert!(!bobs.is_cleared(), "it is the oldest, but Ann has more");
        let kept = anns.iter().filter(|stream| !stream.is_cleared()).count();
        assert_eq!(kept, 3);
    }

    #[test]
    fn dropped_streams_do_not_count() {
        let cache = StreamCache::default();
        let first = ended(0, 10);
        cache.put_within(&first, 50);
        for number in 1..100 {
            cache.put_within(&ended(number, 10), 50);
        }
        assert!(!first.is_cleared());
        assert!(cache.0.lock().streams.len() < 10);
    }
}

//! Events that clients have not read when a replica drains. They wait in the store for the next holder of the session.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stayput_core::{EventLog, Owner, SessionId, StoreError, Topic};

use crate::connections::{connection::Connection, event_stream::EventStream};

/// Largest number of bytes that are stored of one connection. The latest streams come first.
const MAX_BYTES: usize = 4 << 20;

/// Number of stored parts that are read at once. A stream is stored as one, unless it was stored more than once.
const PAGE: usize = 8;

/// Events in the store, which all replicas share.
pub(crate) struct UnreadEvents(Arc<dyn EventLog>);

/// Events of one stream as they are stored.
#[derive(Serialize, Deserialize)]
struct StoredEvents<'a> {
    /// The one server that writes to the stream; `None` if several may.
    server: Option<Cow<'a, str>>,
    /// Whether the client listens on the stream, so that more events follow.
    listens: bool,
    /// Events with their numbers in the stream, from which the client's ids of them follow.
    events: Vec<(u64, Cow<'a, str>)>,
}

/// Stream that another replica has stored.
pub(crate) struct StoredStream {
    pub(crate) stream: Arc<EventStream>,
    /// Whether the client listens on it.
    pub(crate) listens: bool,
}

impl UnreadEvents {
    pub(crate) fn new(log: Arc<dyn EventLog>) -> Self {
        Self(log)
    }

    /// Stores the streams of a connection that its client has not read to their ends.
    pub(crate) async fn save(&self, connection: &Connection) -> Result<(), StoreError> {
        let listen_stream = connection.listen_stream();
        let mut bytes = 0;
        for stream in connection.streams.unread().into_iter().rev() {
            bytes += stream.bytes();
            let Some(topic) = stream.topic().filter(|_| bytes <= MAX_BYTES) else { continue };
            let listens = listen_stream.as_ref().is_some_and(|it| Arc::ptr_eq(it, &stream));
            let server = stream.server().map(|it| Cow::Borrowed(&**it));
            let events = stream.events();
            let events =
                events.iter().map(|(number, text)| (*number, String::from_utf8_lossy(text)));
            let stored = StoredEvents { server, listens, events: events.collect() };
            // All fields are numbers and text, so serialization does not fail.
            let stored = serde_json::to_vec(&stored).unwrap_or_default();
            self.0.append(topic, &stored).await?;
        }
        Ok(())
    }

    /// Takes a stream out of the store; `None` if nothing is stored of it.
    pub(crate) async fn take(&self, topic: &Topic) -> Result<Option<StoredStream>, StoreError> {
        let (mut events, mut last, mut listens, mut server) = (Vec::new(), 0, false, None);
        loop {
            let page = self.0.read_after(topic, last, PAGE).await?;
            for event in &page {
                last = event.number;
                // A newer version may store other events.
                let Ok(stored) = serde_json::from_slice::<StoredEvents<'_>>(&event.body) else {
                    continue;
                };
                listens = stored.listens;
                server = stored.server.map(|it| it.into_owned().into());
                let texts = stored.events.into_iter();
                events.extend(texts.map(|(number, text)| (number, Bytes::from(text.into_owned()))));
            }
            if page.len() < PAGE {
                break;
            }
        }
        if last > 0 {
            self.0.trim(topic, last).await?;
        }
        let stream = EventStream::restored(topic.clone(), server, events);
        Ok(stream.map(|stream| StoredStream { stream, listens }))
    }

    /// Removes what is stored for the clients of a session that has ended.
    pub(crate) async fn remove(&self, owner: &Owner, session: SessionId) {
        if let Err(error) = self.0.remove_session(owner, session).await {
            tracing::warn!("the unread events of an ended session were not removed: {error}");
        }
    }
}

impl fmt::Debug for UnreadEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnreadEvents(…)")
    }
}

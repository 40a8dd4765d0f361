//! Event stream that outlives its connections.

use std::time::Duration;

use http::HeaderValue;
use stayput_wire::sse::{Decoder, Event, EventTooLarge};

/// Decodes events, and remembers where to resume the stream.
pub(super) struct Events {
    limit: usize,
    decoder: Decoder,
    /// Last event id of the earlier connections.
    last_id: Option<String>,
    retry: Option<Duration>,
}

impl Events {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, decoder: Decoder::new(limit), last_id: None, retry: None }
    }

    /// Begins another connection. The last connection may have broken off inside an event: that part must not
    /// precede the first event of this one.
    pub(super) fn begin(&mut self) {
        self.last_id = self.last_id().map(str::to_owned);
        self.retry = self.retry();
        self.decoder = Decoder::new(self.limit);
    }

    pub(super) fn next_event(&mut self, chunk: &mut &[u8]) -> Option<Result<Event, EventTooLarge>> {
        self.decoder.next_event(chunk)
    }

    fn last_id(&self) -> Option<&str> {
        let last = self.decoder.last_id().or(self.last_id.as_deref());
        // An empty id resets the earlier one.
        last.filter(|last| !last.is_empty())
    }

    /// Returns the `Last-Event-ID` header for the server.
    pub(super) fn resume_from(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(self.last_id()?).ok()
    }

    /// Returns the pause that the server wants before a reconnect.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.decoder.retry().or(self.retry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(events: &mut Events, mut chunk: &[u8]) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| Some(events.next_event(&mut chunk)?.unwrap().data().to_vec()))
            .collect()
    }

    #[test]
    fn incomplete_event_does_not_spoil_the_next_connection() {
        let mut events = Events::new(99);
        assert_eq!(read(&mut events, b"id: 1\nretry: 5\ndata: a\n\nid: 2\ndata: b"), [b"a"]);
        assert_eq!(events.resume_from().unwrap(), "1");
        events.begin();
        assert_eq!(events.resume_from().unwrap(), "1");
        assert_eq!(events.retry(), Some(Duration::from_millis(5)));
        assert_eq!(read(&mut events, b"id: 2\ndata: b\n\n"), [b"b"]);
        assert_eq!(events.resume_from().unwrap(), "2");
        assert!(read(&mut events, b"id:\n\n").is_empty());
        assert!(events.resume_from().is_none());
    }
}

//! A stream of events that outlives its connections.

use std::time::Duration;

use http::HeaderValue;
use stayput_wire::sse::{Decoder, Event, EventTooLarge};

/// Reads events, and knows where to take the stream up again.
pub(super) struct Events {
    limit: usize,
    decoder: Decoder,
    /// What the connections before told.
    last_id: Option<String>,
    retry: Option<Duration>,
}

impl Events {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, decoder: Decoder::new(limit), last_id: None, retry: None }
    }

    /// Another connection begins. The event that the last one broke off in was not sent: its half must
    /// not stand before the first one of this.
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
        // An empty one takes back what was told before.
        last.filter(|last| !last.is_empty())
    }

    /// What names the last event to the server.
    pub(super) fn resume_from(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(self.last_id()?).ok()
    }

    /// The pause that the server wants before it is asked again.
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
    fn half_an_event_does_not_spoil_the_next_connection() {
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

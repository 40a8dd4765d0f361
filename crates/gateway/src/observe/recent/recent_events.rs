//! Last events of the gateway, and a feed of new ones.

use std::{collections::VecDeque, mem::size_of, sync::Arc};

use stayput_core::{Clock as _, SessionId, SystemClock, Timestamp};
use stayput_sync::Mutex;
use tokio::sync::broadcast;

/// Number of events that are kept.
const KEPT: usize = 256;

/// Maximum number of bytes of the text of an event.
const MAX_TEXT: usize = 256;

/// Most memory of the log: events in the ring, and pointers to them in the ring and the feed.
pub(super) const MAX_BYTES: usize =
    KEPT * (size_of::<LoggedEvent>() + 2 * MAX_TEXT + 2 * size_of::<Arc<LoggedEvent>>());

/// Event of the log.
#[derive(Debug, Default)]
pub(crate) struct LoggedEvent {
    /// Number of the event since the process started, from 1.
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
    /// Kind as one word, such as `lost`.
    pub(crate) kind: &'static str,
    pub(crate) session: Option<SessionId>,
    pub(crate) server: Option<Box<str>>,
    pub(crate) reason: Option<&'static str>,
    pub(crate) generation: Option<u64>,
    /// Text for the operator, such as the end of a process's stderr.
    pub(crate) detail: Option<Box<str>>,
}

impl LoggedEvent {
    /// Creates an event of this kind.
    pub(crate) fn new(kind: &'static str, reason: Option<&'static str>) -> Self {
        Self { kind, reason, ..Self::default() }
    }

    /// Sets the session, and the server if it is known.
    pub(crate) fn in_session(self, session: SessionId, server: Option<&str>) -> Self {
        Self { session: Some(session), server: server.map(start), ..self }
    }

    /// Whether both events are the loss of one state.
    fn is_same_loss(&self, other: &Self) -> bool {
        let is_same_state = self.session == other.session && self.generation == other.generation;
        self.kind == other.kind && is_same_state && self.server == other.server
    }

    /// Adds the text of a loss: its end, which tells most.
    pub(crate) fn with_loss(self, generation: u64, detail: &str) -> Self {
        let detail = detail.trim();
        let mut from = detail.len().saturating_sub(MAX_TEXT);
        while !detail.is_char_boundary(from) {
            from += 1;
        }
        let detail = detail.get(from..).filter(|it| !it.is_empty()).map(Box::from);
        Self { generation: Some(generation), detail, ..self }
    }
}

/// Returns the start of a name.
fn start(name: &str) -> Box<str> {
    let mut length = name.len().min(MAX_TEXT);
    while !name.is_char_boundary(length) {
        length -= 1;
    }
    name.get(..length).unwrap_or_default().into()
}

/// Log of the last events.
#[derive(Debug)]
pub(crate) struct RecentEvents {
    buffer: Mutex<EventBuffer>,
    feed: broadcast::Sender<Arc<LoggedEvent>>,
}

#[derive(Debug, Default)]
struct EventBuffer {
    events: VecDeque<Arc<LoggedEvent>>,
    last: u64,
}

impl Default for RecentEvents {
    fn default() -> Self {
        Self { buffer: Mutex::default(), feed: broadcast::Sender::new(KEPT) }
    }
}

impl RecentEvents {
    /// Adds an event, and sends it to the open pages. A loss that is in the log is not added again: the log has it
    /// from the end of the link, and the call that reports it comes later.
    pub(crate) fn add(&self, event: LoggedEvent) {
        let mut buffer = self.buffer.lock();
        if event.kind == "lost" && buffer.events.iter().any(|known| known.is_same_loss(&event)) {
            return;
        }
        buffer.last += 1;
        let event = Arc::new(LoggedEvent { number: buffer.last, at: SystemClock.now(), ..event });
        if buffer.events.len() == KEPT {
            buffer.events.pop_front();
        }
        buffer.events.push_back(event.clone());
        // Sent under the lock, so that the feed has the order of the log. Without an open page it has no receiver.
        let _ = self.feed.send(event);
    }

    /// Returns the kept events after this number, and the feed of those that follow them.
    pub(crate) fn follow(
        &self,
        after: u64,
    ) -> (Vec<Arc<LoggedEvent>>, broadcast::Receiver<Arc<LoggedEvent>>) {
        let buffer = self.buffer.lock();
        // A number of an earlier process may be higher than any of this one.
        let after = if after > buffer.last { 0 } else { after };
        let events = buffer.events.iter().filter(|event| event.number > after).cloned().collect();
        (events, self.feed.subscribe())
    }

    /// Returns the kept losses of a session, the latest first.
    pub(crate) fn losses(&self, session: SessionId) -> Vec<Arc<LoggedEvent>> {
        let buffer = self.buffer.lock();
        let of_session =
            |event: &&Arc<LoggedEvent>| event.kind == "lost" && event.session == Some(session);
        buffer.events.iter().rev().filter(of_session).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_event_makes_room() {
        let log = RecentEvents::default();
        for _ in 0..KEPT + 10 {
            log.add(LoggedEvent::new("refused", Some("busy")));
        }
        let (events, _) = log.follow(0);
        assert_eq!((events.len(), events[0].number), (KEPT, 11));
        let (rest, mut feed) = log.follow(KEPT as u64 + 8);
        assert_eq!(rest.len(), 2);
        log.add(LoggedEvent::new("reloaded", None));
        assert_eq!(feed.try_recv().unwrap().kind, "reloaded");
        assert_eq!(log.follow(1_000_000).0.len(), KEPT, "a number of an earlier process");
    }

    #[test]
    fn loss_is_logged_once() {
        let log = RecentEvents::default();
        let session = SessionId::generate(SystemClock.now());
        let lost = |server, generation| {
            let event = LoggedEvent::new("lost", None).in_session(session, Some(server));
            log.add(event.with_loss(generation, ""));
        };
        for (server, generation) in [("notes", 2), ("notes", 2), ("notes", 3), ("files", 3)] {
            lost(server, generation);
        }
        assert_eq!(log.losses(session).len(), 3);
    }

    #[test]
    fn text_of_a_loss_is_its_end() {
        let event =
            LoggedEvent::new("lost", None).with_loss(2, &format!("{}ü end\n", "x".repeat(400)));
        let detail = event.detail.unwrap();
        assert!(detail.len() <= MAX_TEXT && detail.ends_with("ü end"), "{detail}");
    }
}

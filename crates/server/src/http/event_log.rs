//! Log of the events sent to a legacy client, for clients that resume a stream.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use futures_core::Stream;
use rmcp::{
    model::ServerJsonRpcMessage,
    transport::streamable_http_server::session::{
        EventId, EventStore, EventStoreError, EventStream, ServerSseMessage,
    },
};
use serde::{Deserialize, Serialize};
use stayput_core::{Digest, Event, EventIds, Owner, SessionOpenError, Topic, UnknownEvent};
use stayput_sync::Mutex;
use tokio::{sync::mpsc, time::Instant};

use crate::{Error, ServerSessions, names::connection_hash, request::scope};

/// Time during which the events of a finished call can be replayed.
const REPLAY_WINDOW: Duration = Duration::from_secs(5 * 60);

/// Interval at which a replay looks for events of another process.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// EventLog read at once.
const REPLAY_PAGE: usize = 64;

/// EventLog of one legacy client, in the shared event store.
pub(crate) struct EventLog {
    sessions: ServerSessions,
    owner: Owner,
    /// `Mcp-Session-Id` of the client, once it is known.
    client: OnceLock<String>,
    /// Last events of finished calls, oldest first. Trimmed after [`REPLAY_WINDOW`].
    ended: Mutex<VecDeque<(Instant, Topic, u64)>>,
}

/// Stored form of an event.
#[derive(Serialize, Deserialize)]
struct StoredEvent {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Arc<ServerJsonRpcMessage>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<u64>,
}

impl StoredEvent {
    /// Returns whether this is the last event of its stream.
    fn is_last(&self) -> bool {
        let message = self.message.as_deref();
        matches!(message, Some(ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)))
    }
}

impl EventLog {
    pub(crate) fn new(sessions: ServerSessions, owner: Owner) -> Self {
        Self { sessions, owner, client: OnceLock::new(), ended: Mutex::default() }
    }

    /// Sets the client that the events belong to.
    pub(crate) fn set_client(&self, client: &str) {
        let _ = self.client.set(client.to_owned());
    }

    /// Returns the topic of a stream. Every stream has its own id, except for the standalone stream, which continues
    /// in another process.
    async fn topic(&self, stream: &str) -> Result<(Topic, EventIds), Error> {
        let client = self.client.get().ok_or(SessionOpenError::Unknown)?;
        let name = connection_hash(&self.owner, client.as_bytes());
        let session = self.sessions.registry().connection_session(name).await?;
        let digest = Digest::compute("stream", &[stream.as_bytes()]);
        let number = digest.as_bytes().first_chunk().copied().map_or(0, u64::from_be_bytes);
        Ok((Topic { owner: self.owner.clone(), session, stream: number }, ids(client)))
    }

    /// Trims the events of calls that finished more than [`REPLAY_WINDOW`] ago.
    async fn trim_ended(&self) -> Result<(), Error> {
        loop {
            let old = {
                let mut ended = self.ended.lock();
                let over = ended.front().is_some_and(|(at, ..)| at.elapsed() >= REPLAY_WINDOW);
                if over { ended.pop_front() } else { None }
            };
            let Some((_, topic, number)) = old else { return Ok(()) };
            self.sessions.registry().events.trim(&topic, number).await?;
        }
    }
}

/// Event ids of a client, sealed with its `Mcp-Session-Id`. That id is a secret between the client and the processes
/// that it calls.
fn ids(client: &str) -> EventIds {
    EventIds::new(Digest::compute("events", &[client.as_bytes()]).as_bytes())
}

#[async_trait]
impl EventStore for EventLog {
    async fn store_event(
        &self,
        stream: &str,
        event: &ServerSseMessage,
    ) -> Result<EventId, EventStoreError> {
        let (topic, ids) = self.topic(stream).await?;
        let retry = event.retry.and_then(|it| u64::try_from(it.as_millis()).ok());
        let stored = StoredEvent { message: event.message.clone(), retry };
        let body = serde_json::to_vec(&stored)?;
        let number = self.sessions.registry().events.append(&topic, &body).await?;
        let id = ids.seal(&topic, number);
        if stored.is_last() {
            let mut ended = self.ended.lock();
            ended.push_back((Instant::now(), topic, number));
        }
        self.trim_ended().await?;
        Ok(id)
    }

    async fn replay_events_after(&self, last: &str) -> Result<EventStream, EventStoreError> {
        let request_session = scope::current().ok_or(Error::LayerMissing)?;
        let name = request_session.connection_hash().ok_or(UnknownEvent)?;
        let client =
            request_session.connection_id().and_then(|id| id.to_str().ok()).ok_or(UnknownEvent)?;
        let session = self.sessions.registry().connection_session(name).await?;
        let ids = ids(client);
        let (topic, number) = ids.open(request_session.owner(), session, last)?;
        let (sender, receiver) = mpsc::channel(REPLAY_PAGE);
        let replay = Replay { sessions: self.sessions.clone(), topic, ids, last_sent: number };
        tokio::runtime::Handle::current().spawn(replay.run(sender));
        Ok(Box::pin(ReceiverStream(receiver)))
    }
}

/// Replays the events of a stream and follows it, until its last event or until the reader is dropped.
struct Replay {
    sessions: ServerSessions,
    topic: Topic,
    ids: EventIds,
    last_sent: u64,
}

impl Replay {
    async fn run(mut self, to: mpsc::Sender<ServerSseMessage>) {
        loop {
            let events = &self.sessions.registry().events;
            // If the store fails, the client resumes again.
            let Ok(page) = events.read_after(&self.topic, self.last_sent, REPLAY_PAGE).await else {
                return;
            };
            let is_idle = page.is_empty();
            for event in page {
                let Some((message, last)) = self.message(&event) else { return };
                self.last_sent = event.number;
                if to.send(message).await.is_err() || last {
                    return;
                }
            }
            if is_idle {
                tokio::select! {
                    () = to.closed() => return,
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                }
            }
        }
    }

    fn message(&self, event: &Event) -> Option<(ServerSseMessage, bool)> {
        let stored: StoredEvent = serde_json::from_slice(&event.body).ok()?;
        let last = stored.is_last();
        let mut message = ServerSseMessage::default();
        message.event_id = Some(self.ids.seal(&self.topic, event.number));
        message.message = stored.message;
        message.retry = stored.retry.map(Duration::from_millis);
        Some((message, last))
    }
}

/// Channel receiver as a stream.
pub(super) struct ReceiverStream(pub(super) mpsc::Receiver<ServerSseMessage>);

impl Stream for ReceiverStream {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        self.0.poll_recv(cx)
    }
}

//! What was said to a client that shook hands, for when it comes back for what it missed.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
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
use stayput_core::{Digest, Event, EventIds, OpenError, Owner, Topic, UnknownEvent};
use tokio::{sync::mpsc, time::Instant};

use crate::{Error, Keeper, carrier::connection_name, scope};

/// How long the events of a call can be read again after it has ended.
const KEPT: Duration = Duration::from_secs(5 * 60);

/// How often somebody who waits for events of another process looks.
const LOOK: Duration = Duration::from_millis(200);

/// How many events are read at once.
const PAGE: usize = 64;

/// The events of a client that shook hands, in the store of a keeper.
pub(crate) struct Log {
    keeper: Keeper,
    owner: Owner,
    /// The id of the client, once it is known.
    client: OnceLock<String>,
    /// Calls that have ended, the first first, until they are forgotten.
    ended: Mutex<VecDeque<(Instant, Topic, u64)>>,
}

/// An event as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Arc<ServerJsonRpcMessage>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<u64>,
}

impl Kept {
    /// Whether nothing comes behind it.
    fn is_last(&self) -> bool {
        let message = self.message.as_deref();
        matches!(message, Some(ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)))
    }
}

impl Log {
    pub(crate) fn new(keeper: Keeper, owner: Owner) -> Self {
        Self { keeper, owner, client: OnceLock::new(), ended: Mutex::default() }
    }

    /// Tells whose events these are.
    pub(crate) fn name(&self, client: &str) {
        let _ = self.client.set(client.to_owned());
    }

    /// The topic of a stream. Each has an id of its own but for the one without a call, which goes on in
    /// another process.
    async fn topic(&self, stream: &str) -> Result<(Topic, EventIds), Error> {
        let client = self.client.get().ok_or(OpenError::Unknown)?;
        let name = connection_name(&self.owner, client.as_bytes());
        let session = self.keeper.shared().led_to(name).await?;
        let digest = Digest::of("stream", &[stream.as_bytes()]);
        let number = digest.as_bytes().first_chunk().copied().map_or(0, u64::from_be_bytes);
        Ok((Topic { owner: self.owner.clone(), session, stream: number }, ids(client)))
    }

    /// Forgets what ended long ago.
    async fn trim(&self) -> Result<(), Error> {
        loop {
            let old = {
                let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
                let over = ended.front().is_some_and(|(at, ..)| at.elapsed() >= KEPT);
                if over { ended.pop_front() } else { None }
            };
            let Some((_, topic, number)) = old else { return Ok(()) };
            self.keeper.shared().events.trim(&topic, number).await?;
        }
    }
}

/// The ids of the events of a client. Its own id is the secret: every process that it comes to has it, and nobody
/// else.
fn ids(client: &str) -> EventIds {
    EventIds::new(Digest::of("events", &[client.as_bytes()]).as_bytes())
}

#[async_trait]
impl EventStore for Log {
    async fn store_event(
        &self,
        stream: &str,
        event: &ServerSseMessage,
    ) -> Result<EventId, EventStoreError> {
        let (topic, ids) = self.topic(stream).await?;
        let retry = event.retry.and_then(|it| u64::try_from(it.as_millis()).ok());
        let kept = Kept { message: event.message.clone(), retry };
        let body = serde_json::to_vec(&kept)?;
        let number = self.keeper.shared().events.append(&topic, &body).await?;
        let id = ids.seal(&topic, number);
        if kept.is_last() {
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.push_back((Instant::now(), topic, number));
        }
        self.trim().await?;
        Ok(id)
    }

    async fn replay_events_after(&self, last: &str) -> Result<EventStream, EventStoreError> {
        let visit = scope::current().ok_or(Error::NotKept)?;
        let name = visit.connection().ok_or(UnknownEvent)?;
        let client = visit.client().and_then(|id| id.to_str().ok()).ok_or(UnknownEvent)?;
        let session = self.keeper.shared().led_to(name).await?;
        let ids = ids(client);
        let (topic, number) = ids.open(visit.owner(), session, last)?;
        let (sender, receiver) = mpsc::channel(PAGE);
        let replay = Replay { keeper: self.keeper.clone(), topic, ids, seen: number };
        tokio::runtime::Handle::current().spawn(replay.run(sender));
        Ok(Box::pin(Received(receiver)))
    }
}

/// Reads the events of a stream to whoever missed them, and those to come, until there are no more or nobody
/// listens.
struct Replay {
    keeper: Keeper,
    topic: Topic,
    ids: EventIds,
    seen: u64,
}

impl Replay {
    async fn run(mut self, to: mpsc::Sender<ServerSseMessage>) {
        loop {
            let events = &self.keeper.shared().events;
            // If the store does not answer, the client comes again.
            let Ok(page) = events.after(&self.topic, self.seen, PAGE).await else { return };
            let waits = page.is_empty();
            for event in page {
                let Some((message, last)) = self.message(&event) else { return };
                self.seen = event.number;
                if to.send(message).await.is_err() || last {
                    return;
                }
            }
            if waits {
                tokio::select! {
                    () = to.closed() => return,
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
        }
    }

    fn message(&self, event: &Event) -> Option<(ServerSseMessage, bool)> {
        let kept: Kept = serde_json::from_slice(&event.body).ok()?;
        let last = kept.is_last();
        let mut message = ServerSseMessage::default();
        message.event_id = Some(self.ids.seal(&self.topic, event.number));
        message.message = kept.message;
        message.retry = kept.retry.map(Duration::from_millis);
        Some((message, last))
    }
}

/// What was received, as a stream.
struct Received(mpsc::Receiver<ServerSseMessage>);

impl Stream for Received {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        self.0.poll_recv(cx)
    }
}

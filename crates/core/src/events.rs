//! Log of server messages, for clients that missed some.

mod id;
mod memory;

use std::fmt;

use async_trait::async_trait;

use crate::{Owner, SessionId, StoreError};

pub use id::{EventIds, UnknownEvent};
pub use memory::MemoryEventLog;

/// Log of events per topic, so that a client can resume a broken stream.
///
/// Owner and session are part of every key, so that no event can be read through another topic.
/// Clients never see the plain numbers; [`EventIds`] seals them.
#[async_trait]
pub trait EventLog: fmt::Debug + Send + Sync + 'static {
    /// Appends an event to a topic and returns its number. The numbers of a topic only grow.
    async fn append(&self, topic: &Topic, body: &[u8]) -> Result<u64, StoreError>;

    /// Reads up to `limit` events with a number above `after`, in order. Zero reads from the start.
    async fn read_after(
        &self,
        topic: &Topic,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError>;

    /// Removes the events of a topic up to and including `through`.
    async fn trim(&self, topic: &Topic, through: u64) -> Result<(), StoreError>;

    /// Removes all topics of a session.
    async fn remove_session(&self, owner: &Owner, session: SessionId) -> Result<(), StoreError>;
}

/// Key of one stream of events of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic {
    /// Owner of the session.
    pub owner: Owner,
    /// Session.
    pub session: SessionId,
    /// Number of the stream in the session.
    pub stream: u64,
}

/// One event of a topic.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// Number of the event in its topic.
    pub number: u64,
    /// Content of the event.
    pub body: Vec<u8>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({}, {} bytes)", self.number, self.body.len())
    }
}

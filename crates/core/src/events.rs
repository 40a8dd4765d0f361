//! What was said to a client, for a client that missed it.

mod id;
mod memory;

use std::fmt;

use async_trait::async_trait;

use crate::{Owner, SessionId, StoreError};

pub use id::{EventIds, UnknownEvent};
pub use memory::MemoryEvents;

/// A log of events per topic, so that a client can read on where it was cut off.
///
/// The owner and the session are part of every key: no event can be read through another one's
/// topic. Clients never see these numbers as they are; [`EventIds`] seals them.
#[async_trait]
pub trait Events: fmt::Debug + Send + Sync + 'static {
    /// Adds an event at the end of a topic; returns its number. Numbers of a topic only grow.
    async fn append(&self, topic: &Topic, body: &[u8]) -> Result<u64, StoreError>;

    /// Reads up to `limit` events whose number is above `after`, in order. Zero reads from the start.
    async fn after(
        &self,
        topic: &Topic,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError>;

    /// Forgets the events of a topic up to and including `through`.
    async fn trim(&self, topic: &Topic, through: u64) -> Result<(), StoreError>;

    /// Forgets all topics of a session.
    async fn forget(&self, owner: &Owner, session: SessionId) -> Result<(), StoreError>;
}

/// A line of events: one stream of one session of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic {
    /// Whose it is.
    pub owner: Owner,
    /// Which session.
    pub session: SessionId,
    /// Which stream of that session.
    pub stream: u64,
}

/// One event of a topic.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number in the topic.
    pub number: u64,
    /// What was said.
    pub body: Vec<u8>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({}, {} bytes)", self.number, self.body.len())
    }
}

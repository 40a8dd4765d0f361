//! Event log in memory.

use std::collections::{BTreeMap, VecDeque};

use async_trait::async_trait;
use stayput_sync::Mutex;

use crate::{Event, EventLog, Owner, SessionId, StoreError, Topic};

/// [`EventLog`] in the memory of this process.
#[derive(Debug, Default)]
pub struct MemoryEventLog(Mutex<BTreeMap<Topic, TopicLog>>);

#[derive(Debug, Default)]
struct TopicLog {
    last: u64,
    events: VecDeque<Event>,
}

impl MemoryEventLog {
    /// Builds an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn with_lock<R>(&self, work: impl FnOnce(&mut BTreeMap<Topic, TopicLog>) -> R) -> R {
        work(&mut self.0.lock())
    }
}

#[async_trait]
impl EventLog for MemoryEventLog {
    async fn append(&self, topic: &Topic, body: &[u8]) -> Result<u64, StoreError> {
        Ok(self.with_lock(|topics| {
            let log = topics.entry(topic.clone()).or_default();
            log.last += 1;
            log.events.push_back(Event { number: log.last, body: body.to_owned() });
            log.last
        }))
    }

    async fn read_after(
        &self,
        topic: &Topic,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        Ok(self.with_lock(|topics| match topics.get(topic) {
            None => Vec::new(),
            Some(log) => {
                let seen = log.events.partition_point(|event| event.number <= after);
                log.events.iter().skip(seen).take(limit).cloned().collect()
            }
        }))
    }

    async fn trim(&self, topic: &Topic, through: u64) -> Result<(), StoreError> {
        self.with_lock(|topics| {
            if let Some(log) = topics.get_mut(topic) {
                let old = log.events.partition_point(|event| event.number <= through);
                log.events.drain(..old);
            }
        });
        Ok(())
    }

    async fn remove_session(&self, owner: &Owner, session: SessionId) -> Result<(), StoreError> {
        let edge = |stream| Topic { owner: owner.clone(), session, stream };
        self.with_lock(|topics| {
            let gone: Vec<_> =
                topics.range(edge(0)..=edge(u64::MAX)).map(|(topic, _)| topic.clone()).collect();
            for topic in gone {
                topics.remove(&topic);
            }
        });
        Ok(())
    }
}

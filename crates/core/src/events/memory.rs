//! Events that are gone with the process.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;

use crate::{Event, Events, Owner, SessionId, StoreError, Topic};

/// [`Events`] in the memory of this process.
#[derive(Debug, Default)]
pub struct MemoryEvents(Mutex<BTreeMap<Topic, Line>>);

#[derive(Debug, Default)]
struct Line {
    last: u64,
    events: VecDeque<Event>,
}

impl MemoryEvents {
    /// An empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn with<R>(&self, work: impl FnOnce(&mut BTreeMap<Topic, Line>) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Events for MemoryEvents {
    async fn append(&self, topic: &Topic, body: &[u8]) -> Result<u64, StoreError> {
        Ok(self.with(|topics| {
            let line = topics.entry(topic.clone()).or_default();
            line.last += 1;
            line.events.push_back(Event { number: line.last, body: body.to_owned() });
            line.last
        }))
    }

    async fn after(
        &self,
        topic: &Topic,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        Ok(self.with(|topics| match topics.get(topic) {
            None => Vec::new(),
            Some(line) => {
                let seen = line.events.partition_point(|event| event.number <= after);
                line.events.iter().skip(seen).take(limit).cloned().collect()
            }
        }))
    }

    async fn trim(&self, topic: &Topic, through: u64) -> Result<(), StoreError> {
        self.with(|topics| {
            if let Some(line) = topics.get_mut(topic) {
                let old = line.events.partition_point(|event| event.number <= through);
                line.events.drain(..old);
            }
        });
        Ok(())
    }

    async fn forget(&self, owner: &Owner, session: SessionId) -> Result<(), StoreError> {
        let edge = |stream| Topic { owner: owner.clone(), session, stream };
        self.with(|topics| {
            let gone: Vec<_> =
                topics.range(edge(0)..=edge(u64::MAX)).map(|(topic, _)| topic.clone()).collect();
            for topic in gone {
                topics.remove(&topic);
            }
        });
        Ok(())
    }
}

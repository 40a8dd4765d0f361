//! Events: one sorted set for each session of each owner.
//!
//! A member is `TOPIC:NUMBER:BODY` with twenty digits each, and all scores are equal, so the set is in
//! the order of topics and numbers. `;` is what comes after `:`.

use ::redis::cmd;
use async_trait::async_trait;
use stayput_core::{Event, Events, Owner, SessionId, StoreError, Topic};

use super::{REDIS, RedisStore, scripts::APPEND};
use crate::failure::corrupt;

/// Two numbers of twenty digits, each with its colon.
const HEAD: usize = 42;

#[async_trait]
impl Events for RedisStore {
    async fn append(&self, topic: &Topic, body: &[u8]) -> Result<u64, StoreError> {
        let [numbers, events] = self.keys.events(&topic.owner, topic.session);
        let mut call = APPEND.call(&[&numbers, &events]);
        self.link.one(call.arg(stream(topic)).arg(body)).await
    }

    async fn after(
        &self,
        topic: &Topic,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let ([_, events], stream) = (self.keys.events(&topic.owner, topic.session), stream(topic));
        let mut range = cmd("ZRANGE");
        range.arg(events).arg(format!("[{stream}:{after:020};")).arg(format!("({stream};"));
        range.arg("BYLEX").arg("LIMIT").arg(0).arg(super::count(limit));
        let members: Vec<Vec<u8>> = self.link.one(&range).await?;
        members.into_iter().map(read).collect()
    }

    async fn trim(&self, topic: &Topic, through: u64) -> Result<(), StoreError> {
        let ([_, events], stream) = (self.keys.events(&topic.owner, topic.session), stream(topic));
        let mut trim = cmd("ZREMRANGEBYLEX");
        trim.arg(events).arg(format!("[{stream}:")).arg(format!("({stream}:{through:020};"));
        self.link.one(&trim).await
    }

    async fn forget(&self, owner: &Owner, session: SessionId) -> Result<(), StoreError> {
        self.link.one(cmd("DEL").arg(&self.keys.events(owner, session))).await
    }
}

fn stream(topic: &Topic) -> String {
    format!("{:020}", topic.stream)
}

fn read(mut member: Vec<u8>) -> Result<Event, StoreError> {
    let digits = member.get(HEAD / 2..HEAD - 1).map(String::from_utf8_lossy);
    let number = digits.and_then(|digits| digits.parse().ok());
    let unreadable = || corrupt(REDIS, "an event", "it has no number");
    let number = number.ok_or_else(unreadable)?;
    member.drain(..HEAD);
    Ok(Event { number, body: member })
}

//! Event log: one sorted set for each session of each owner.
//!
//! A member is `TOPIC:NUMBER:BODY` with twenty digits each, and all scores are equal, so that the
//! set is ordered by topic and number. `;` is the character after `:`.

use ::redis::cmd;
use async_trait::async_trait;
use stayput_core::{Event, EventLog, Owner, SessionId, StoreError, Topic};

use super::{REDIS, RedisStore, scripts::APPEND};
use crate::error::corrupt;

/// Length of two numbers of twenty digits, each with its colon.
const HEAD_BYTES: usize = 42;

#[async_trait]
impl EventLog for RedisStore {
    async fn append(&self, topic: &Topic, body: &[u8]) -> Result<u64, StoreError> {
        let [numbers, events] = self.keys.events(&topic.owner, topic.session);
        let mut call = APPEND.call(&[&numbers, &events]);
        self.connection.query(call.arg(stream(topic)).arg(body)).await
    }

    async fn read_after(
        &self,
        topic: &Topic,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let ([_, events], stream) = (self.keys.events(&topic.owner, topic.session), stream(topic));
        let mut range = cmd("ZRANGE");
        range.arg(events).arg(format!("[{stream}:{after:020};")).arg(format!("({stream};"));
        range.arg("BYLEX").arg("LIMIT").arg(0).arg(super::redis_limit(limit));
        let members: Vec<Vec<u8>> = self.connection.query(&range).await?;
        members.into_iter().map(read).collect()
    }

    async fn trim(&self, topic: &Topic, through: u64) -> Result<(), StoreError> {
        let ([_, events], stream) = (self.keys.events(&topic.owner, topic.session), stream(topic));
        let mut trim = cmd("ZREMRANGEBYLEX");
        trim.arg(events).arg(format!("[{stream}:")).arg(format!("({stream}:{through:020};"));
        self.connection.query(&trim).await
    }

    async fn remove_session(&self, owner: &Owner, session: SessionId) -> Result<(), StoreError> {
        self.connection.query(cmd("DEL").arg(&self.keys.events(owner, session))).await
    }
}

fn stream(topic: &Topic) -> String {
    format!("{:020}", topic.stream)
}

fn read(mut member: Vec<u8>) -> Result<Event, StoreError> {
    let digits = member.get(HEAD_BYTES / 2..HEAD_BYTES - 1).map(String::from_utf8_lossy);
    let number = digits.and_then(|digits| digits.parse().ok());
    let unreadable = || corrupt(REDIS, "an event", "it has no number");
    let number = number.ok_or_else(unreadable)?;
    member.drain(..HEAD_BYTES);
    Ok(Event { number, body: member })
}

//! Contract of the event log.

use std::{collections::BTreeSet, sync::Arc};

use super::{NOW, owner, run_concurrently};
use crate::{EventLog, SessionId, Topic};

fn topic(who: &str, session: SessionId, stream: u64) -> Topic {
    Topic { owner: owner(who), session, stream }
}

async fn bodies(events: &Arc<dyn EventLog>, topic: &Topic, after: u64) -> Vec<Vec<u8>> {
    let read = events.read_after(topic, after, 1_000).await.unwrap();
    assert!(read.is_sorted_by(|one, two| one.number < two.number), "{read:?}");
    assert!(read.iter().all(|event| event.number > after));
    read.into_iter().map(|event| event.body).collect()
}

/// A client resumes a broken stream at its last event.
pub async fn events_are_read_in_order_after_a_number(events: Arc<dyn EventLog>) {
    let topic = topic("ann", SessionId::generate(NOW), 1);
    assert!(events.read_after(&topic, 0, 9).await.unwrap().is_empty());
    let sent = [vec![], vec![0, 255], b"{\"a\":\n1}".to_vec(), vec![7; 70_000]];
    let mut numbers = Vec::new();
    for body in &sent {
        numbers.push(events.append(&topic, body).await.unwrap());
    }
    assert!(numbers[0] > 0, "zero reads from the start");
    assert_eq!(bodies(&events, &topic, 0).await, sent);
    assert_eq!(bodies(&events, &topic, numbers[1]).await, sent[2..]);
    assert!(bodies(&events, &topic, numbers[3]).await.is_empty());
    assert_eq!(events.read_after(&topic, numbers[0], 2).await.unwrap().len(), 2);
}

/// Owner, session and stream are all part of a topic's key.
pub async fn topics_are_separate(events: Arc<dyn EventLog>) {
    let session = SessionId::generate(NOW);
    let topics = [
        topic("ann", session, 1),
        topic("ann", session, 12),
        topic("ann", session, u64::MAX),
        topic("bob", session, 1),
        topic("ann", SessionId::generate(NOW), 1),
    ];
    for (n, topic) in topics.iter().enumerate() {
        events.append(topic, &[u8::try_from(n).unwrap()]).await.unwrap();
    }
    for (n, topic) in topics.iter().enumerate() {
        assert_eq!(bodies(&events, topic, 0).await, [[u8::try_from(n).unwrap()]]);
    }
}

/// A number is never reused: otherwise a client would skip events.
pub async fn trim_removes_events_and_keeps_counting(events: Arc<dyn EventLog>) {
    let topic = topic("ann", SessionId::generate(NOW), 1);
    events.trim(&topic, 5).await.unwrap();
    let mut last = 0;
    for body in [b"a", b"b", b"c"] {
        last = events.append(&topic, body).await.unwrap();
    }
    events.trim(&topic, last - 1).await.unwrap();
    assert_eq!(bodies(&events, &topic, 0).await, [b"c"]);
    events.trim(&topic, last).await.unwrap();
    assert!(bodies(&events, &topic, 0).await.is_empty());
    assert!(events.append(&topic, b"d").await.unwrap() > last);
    assert_eq!(bodies(&events, &topic, last).await, [b"d"]);
}

/// Removing a session removes its topics and no other ones.
pub async fn remove_session_removes_its_topics_only(events: Arc<dyn EventLog>) {
    let (gone, kept) = (SessionId::generate(NOW), SessionId::generate(NOW));
    let topics = [
        topic("ann", gone, 0),
        topic("ann", gone, u64::MAX),
        topic("bob", gone, 1),
        topic("ann", kept, 1),
    ];
    for topic in &topics {
        events.append(topic, b"x").await.unwrap();
    }
    for _ in 0..2 {
        events.remove_session(&owner("ann"), gone).await.unwrap();
        assert!(bodies(&events, &topics[0], 0).await.is_empty());
        assert!(bodies(&events, &topics[1], 0).await.is_empty());
        assert_eq!(bodies(&events, &topics[2], 0).await, [b"x"]);
        assert_eq!(bodies(&events, &topics[3], 0).await, [b"x"]);
    }
}

/// Concurrent writers to one topic get distinct numbers.
pub async fn concurrent_appends_get_distinct_numbers(events: Arc<dyn EventLog>) {
    let topic = topic("ann", SessionId::generate(NOW), 1);
    let numbers = run_concurrently(20, |n| {
        let (events, topic) = (events.clone(), topic.clone());
        async move { events.append(&topic, &[u8::try_from(n).unwrap()]).await.unwrap() }
    })
    .await;
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(bodies(&events, &topic, 0).await.into_iter().collect::<BTreeSet<_>>().len(), 20);
}

//! What is promised of events.

use std::{collections::BTreeSet, sync::Arc};

use super::{NOW, at_once, owner};
use crate::{Events, SessionId, Topic};

fn topic(who: &str, session: SessionId, stream: u64) -> Topic {
    Topic { owner: owner(who), session, stream }
}

async fn bodies(events: &Arc<dyn Events>, topic: &Topic, after: u64) -> Vec<Vec<u8>> {
    let read = events.after(topic, after, 1_000).await.unwrap();
    assert!(read.is_sorted_by(|one, two| one.number < two.number), "{read:?}");
    assert!(read.iter().all(|event| event.number > after));
    read.into_iter().map(|event| event.body).collect()
}

/// Whoever was cut off reads on where it was.
pub async fn events_are_read_in_order_after_a_place(events: Arc<dyn Events>) {
    let topic = topic("ann", SessionId::generate(NOW), 1);
    assert!(events.after(&topic, 0, 9).await.unwrap().is_empty());
    let said = [vec![], vec![0, 255], b"{\"a\":\n1}".to_vec(), vec![7; 70_000]];
    let mut numbers = Vec::new();
    for body in &said {
        numbers.push(events.append(&topic, body).await.unwrap());
    }
    assert!(numbers[0] > 0, "zero reads from the start");
    assert_eq!(bodies(&events, &topic, 0).await, said);
    assert_eq!(bodies(&events, &topic, numbers[1]).await, said[2..]);
    assert!(bodies(&events, &topic, numbers[3]).await.is_empty());
    assert_eq!(events.after(&topic, numbers[0], 2).await.unwrap().len(), 2);
}

/// Owner, session and stream are all part of where an event is.
pub async fn topics_are_kept_apart(events: Arc<dyn Events>) {
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

/// A number is never given twice, or a client would skip what it has not seen.
pub async fn trimmed_events_are_gone_and_numbers_go_on(events: Arc<dyn Events>) {
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

/// What a session said goes with it, and nothing else does.
pub async fn forgetting_a_session_forgets_its_topics_alone(events: Arc<dyn Events>) {
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
        events.forget(&owner("ann"), gone).await.unwrap();
        assert!(bodies(&events, &topics[0], 0).await.is_empty());
        assert!(bodies(&events, &topics[1], 0).await.is_empty());
        assert_eq!(bodies(&events, &topics[2], 0).await, [b"x"]);
        assert_eq!(bodies(&events, &topics[3], 0).await, [b"x"]);
    }
}

/// Many writers to one topic: every event has its place.
pub async fn concurrent_events_get_numbers_of_their_own(events: Arc<dyn Events>) {
    let topic = topic("ann", SessionId::generate(NOW), 1);
    let numbers = at_once(20, |n| {
        let (events, topic) = (events.clone(), topic.clone());
        async move { events.append(&topic, &[u8::try_from(n).unwrap()]).await.unwrap() }
    })
    .await;
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(bodies(&events, &topic, 0).await.into_iter().collect::<BTreeSet<_>>().len(), 20);
}

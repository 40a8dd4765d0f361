//! Cancelled, concurrent and refused openers.

use std::sync::Arc;

use futures_util::future::join_all;
use stayput_core::{
    Expiry, Generation, OpenOptions, Origin, SessionId, SessionLimits, SessionOpenError, Settings,
    Timestamp,
};
use stayput_testkit::faulty::Faulty;

use crate::kit::{MINUTE, World, ann, chat, lease_forever, poll_steps};

/// A store failure during an eviction does not block the session until a sweep.
#[tokio::test]
async fn session_is_usable_after_a_failed_eviction() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world
        .on(
            slow.clone(),
            Settings {
                sessions: SessionLimits { per_owner: 9, provisional_per_owner: 1 },
                ..lease_forever()
            },
        )
        .await;
    let opened = sessions.open(&OpenOptions::new(ann()).provisional()).await.unwrap();
    let handle = sessions.issue_handle(&opened.session).await.unwrap();
    drop(opened);
    slow.fail(true);
    assert!(sessions.open(&OpenOptions::new(ann()).provisional()).await.is_err());
    slow.fail(false);
    match sessions.find_by_handle(&ann(), &handle).await {
        Ok(_) | Err(SessionOpenError::Ended(_)) => {}
        other => panic!("{other:?}"),
    }
}

/// The limit on provisional sessions holds against concurrent openers.
#[tokio::test]
async fn concurrent_opens_do_not_exceed_the_provisional_limit() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), lease_forever()).await;
    let options = OpenOptions::new(ann()).provisional();
    let opened = join_all((0..100).map(|_| sessions.open(&options))).await;
    let n = opened.iter().filter(|opened| opened.is_ok()).count();
    assert!(n <= 8, "{n} provisional sessions, 8 allowed");
}

/// A options's expiry survives the coming back of the handle.
#[tokio::test]
async fn confirmed_session_gets_its_requested_expiry() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions
        .open(&OpenOptions::new(ann()).expiry(Expiry::idle(MINUTE * 90)).provisional())
        .await
        .unwrap();
    let handle = sessions.issue_handle(&opened.session).await.unwrap();
    let found = sessions.find_by_handle(&ann(), &handle).await.unwrap();
    assert_eq!(found.record().expiry, Expiry::idle(MINUTE * 90));
}

/// The opener of an ended key gets the loss, also after a cancelled opener.
#[tokio::test]
async fn loss_is_reported_after_a_cancelled_open() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), lease_forever()).await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    drop(opened);
    slow.hang(true);
    let options = chat("a");
    let mut opening = Box::pin(sessions.open(&options));
    poll_steps(&slow, &mut opening, 1).await; // inserted, answer on its way
    drop(opening); // the client went away
    slow.hang(false);
    assert_eq!(sessions.open(&options).await.unwrap().origin, Origin::Lost(Generation(1)));
}

/// A client that chose the id finds the session after a cancelled open, and no sweep ends it in between.
#[tokio::test]
async fn session_with_a_chosen_id_survives_a_cancelled_open() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), lease_forever()).await;
    let id = SessionId::generate(Timestamp::from_millis(1));
    let options = OpenOptions::new(ann()).id(id);
    slow.hang(true);
    let mut opening = Box::pin(sessions.open(&options));
    poll_steps(&slow, &mut opening, 1).await; // inserted, answer on its way
    drop(opening);
    slow.hang(false);
    drop(sessions.open(&options).await.unwrap());
    assert!(sessions.sweep().await.ended.is_empty());
    let found = sessions.find_by_id(&ann(), id).await.unwrap();
    // `end_and_remove` leaves no tombstone.
    let session = found.session().clone();
    drop(found);
    sessions.end_and_remove(&session).await.unwrap();
    assert!(world.store.load(id).await.unwrap().is_none());
    assert_eq!(sessions.sweep().await.ended.len(), 1, "its links must be closed");
    assert!(matches!(sessions.find_by_id(&ann(), id).await, Err(SessionOpenError::Unknown)));
}

/// The loss is also reported when unrelated sessions end meanwhile.
#[tokio::test]
async fn loss_is_reported_while_other_sessions_end() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), lease_forever()).await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    drop(opened);
    let mut others = vec![];
    for n in 0..600 {
        others.push(sessions.open(&chat(&n.to_string())).await.unwrap().session.session().clone());
    }
    slow.hang(true);
    let options = chat("a");
    let mut opening = Box::pin(sessions.open(&options));
    poll_steps(&slow, &mut opening, 1).await;
    slow.hang(false);
    for opened in &others {
        sessions.end(opened).await.unwrap();
    }
    slow.step();
    assert_eq!(opening.await.unwrap().origin, Origin::Lost(Generation(1)));
}

/// A session without a key is created once.
#[tokio::test]
async fn session_without_a_key_is_created_once() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), lease_forever()).await;
    let mut others = vec![];
    for n in 0..600 {
        others.push(sessions.open(&chat(&n.to_string())).await.unwrap().session.session().clone());
    }
    slow.hang(true);
    let options = OpenOptions::new(ann());
    let mut opening = Box::pin(sessions.open(&options));
    poll_steps(&slow, &mut opening, 1).await;
    slow.hang(false);
    for opened in &others {
        sessions.end(opened).await.unwrap();
    }
    slow.step();
    drop(opening.await.unwrap());
    assert_eq!(
        world.store.list(None, None, 99).await.unwrap().len(),
        1,
        "live sessions in the store"
    );
}

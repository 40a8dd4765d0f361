//! Openers that are cancelled, many, or too many.

use std::sync::Arc;

use futures_util::future::join_all;
use stayput_core::{
    Expiry, Generation, OpenError, Origin, SessionId, SessionLimits, Settings, Timestamp, Wish,
};
use stayput_testkit::faulty::Faulty;

use crate::kit::{MINUTE, World, ann, chat, forever, poll_steps};

/// A store failure at eviction keeps nobody out of his session until a sweep.
#[tokio::test]
async fn failed_eviction() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world
        .on(
            slow.clone(),
            Settings {
                sessions: SessionLimits { per_owner: 9, provisional_per_owner: 1 },
                ..forever()
            },
        )
        .await;
    let opened = sessions.open(&Wish::new(ann()).provisional()).await.unwrap();
    let h = sessions.issue_handle(&opened.session).await.unwrap();
    drop(opened);
    slow.fail(true);
    assert!(sessions.open(&Wish::new(ann()).provisional()).await.is_err());
    slow.fail(false);
    match sessions.by_handle(&ann(), &h).await {
        Ok(_) | Err(OpenError::Over(_)) => {}
        other => panic!("{other:?}"),
    }
}

/// A limit on provisional sessions holds against many at once.
#[tokio::test]
async fn provisional_limit_at_once() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let wish = Wish::new(ann()).provisional();
    let opened = join_all((0..100).map(|_| sessions.open(&wish))).await;
    let n = opened.iter().filter(|opened| opened.is_ok()).count();
    assert!(n <= 8, "{n} provisional sessions, 8 allowed");
}

/// A wish's expiry survives the coming back of the handle.
#[tokio::test]
async fn provisional_expiry() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions
        .open(&Wish::new(ann()).expiry(Expiry::idle(MINUTE * 90)).provisional())
        .await
        .unwrap();
    let h = sessions.issue_handle(&opened.session).await.unwrap();
    let found = sessions.by_handle(&ann(), &h).await.unwrap();
    assert_eq!(found.record().expiry, Expiry::idle(MINUTE * 90));
}

/// Who opens the key of a session that is over is told of the loss, also after a cancelled opener.
#[tokio::test]
async fn loss_after_a_cancelled_open() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    drop(opened);
    slow.hang(true);
    let wish = chat("a");
    let mut opening = Box::pin(sessions.open(&wish));
    poll_steps(&slow, &mut opening, 1).await; // inserted, answer on its way
    drop(opening); // the client went away
    slow.hang(false);
    assert_eq!(sessions.open(&wish).await.unwrap().origin, Origin::Lost(Generation(1)));
}

/// Who chose the id of a session comes back by it after a cancelled opener, and no sweep ends it in between.
#[tokio::test]
async fn a_chosen_id_is_no_stray() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let id = SessionId::generate(Timestamp::from_millis(1));
    let wish = Wish::new(ann()).id(id);
    slow.hang(true);
    let mut opening = Box::pin(sessions.open(&wish));
    poll_steps(&slow, &mut opening, 1).await; // inserted, answer on its way
    drop(opening);
    slow.hang(false);
    drop(sessions.open(&wish).await.unwrap());
    assert!(sessions.sweep().await.ended.is_empty());
    let found = sessions.by_id(&ann(), id).await.unwrap();
    // Who ends it for good leaves nothing to be remembered.
    let session = found.session().clone();
    drop(found);
    sessions.forget(&session).await.unwrap();
    assert!(world.store.load(id).await.unwrap().is_none());
    assert_eq!(sessions.sweep().await.ended.len(), 1, "its links are to be closed");
    assert!(matches!(sessions.by_id(&ann(), id).await, Err(OpenError::Unknown)));
}

/// And when unrelated sessions end meanwhile.
#[tokio::test]
async fn loss_while_others_end() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    drop(opened);
    let mut others = vec![];
    for n in 0..600 {
        others.push(sessions.open(&chat(&n.to_string())).await.unwrap().session.session().clone());
    }
    slow.hang(true);
    let wish = chat("a");
    let mut opening = Box::pin(sessions.open(&wish));
    poll_steps(&slow, &mut opening, 1).await;
    slow.hang(false);
    for opened in &others {
        sessions.end(opened).await.unwrap();
    }
    slow.step();
    assert_eq!(opening.await.unwrap().origin, Origin::Lost(Generation(1)));
}

/// And an unnamed session is made once.
#[tokio::test]
async fn unnamed_made_once() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let mut others = vec![];
    for n in 0..600 {
        others.push(sessions.open(&chat(&n.to_string())).await.unwrap().session.session().clone());
    }
    slow.hang(true);
    let wish = Wish::new(ann());
    let mut opening = Box::pin(sessions.open(&wish));
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

//! The end of a session, half-way and twice.

use std::sync::Arc;

use stayput_core::{Attachment, Generation, OpenError};
use stayput_testkit::faulty::Faulty;

use crate::kit::{MINUTE, World, ann, chat, forever};

/// end() that was cancelled (or whose answer got lost) still says which links to close.
#[tokio::test]
async fn lost_answer_of_end_keeps_attachments() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions
        .change(&opened.session, |r| {
            r.attach("browser", Attachment::new(Generation(1), "up"));
        })
        .await
        .unwrap();
    let session = opened.session.session().clone();
    drop(opened);
    slow.lose_the_next_answer();
    assert!(sessions.end(&session).await.is_err());
    let swept = sessions.sweep().await;
    assert_eq!(swept.ended.len(), 1);
    assert!(
        swept.ended[0].attachments.contains_key("browser"),
        "the link to close is forgotten: {:?}",
        swept.ended[0]
    );
}

/// Ended is told once.
#[tokio::test]
async fn told_once() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE * 30);
    slow.fail(true);
    assert!(sessions.by_id(&ann(), id).await.is_err()); // closes the gate, cannot write
    slow.fail(false);
    assert!(matches!(sessions.by_id(&ann(), id).await, Err(OpenError::Over(_))));
    let n = sessions.sweep().await.ended.len() + sessions.sweep().await.ended.len();
    assert_eq!(n, 1, "told twice");
}

/// A key whose session is being ended can be opened again.
#[tokio::test]
async fn open_while_end_is_under_way_or_was_cancelled() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let session = opened.session.session().clone();
    drop(opened);
    slow.hang(true);
    let mut end = Box::pin(sessions.end(&session));
    assert!(futures_util::poll!(&mut end).is_pending());
    drop(end); // cancelled before the store did anything
    slow.hang(false);
    let again = sessions.open(&chat("a")).await;
    assert!(again.is_ok(), "{:?}", again.unwrap_err());
}

/// end by an old Arc must not leave a revived session open but not held.
#[tokio::test]
async fn end_twice_over_revive() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let old = opened.session.session().clone();
    drop(opened);
    sessions.end(&old).await.unwrap();
    let _ = sessions.sweep().await;
    let revived = sessions.revive(&ann(), old.id()).await.unwrap();
    sessions.end(&old).await.unwrap(); // a second DELETE of the same client
    let live = world.store.load(old.id()).await.unwrap().unwrap().is_live();
    assert!(live != revived.session.is_over(), "over in the store, and its gate is open");
    assert!(
        sessions.sweep().await.ended.is_empty(),
        "somebody is inside, and its links are closed"
    );
}

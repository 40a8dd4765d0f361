//! Interrupted and repeated ends of a session.

use std::sync::Arc;

use stayput_core::{Attachment, Generation, SessionOpenError};
use stayput_testkit::faulty::Faulty;

use crate::kit::{MINUTE, World, ann, chat, lease_forever};

/// An end whose answer was lost still reports the links to close.
#[tokio::test]
async fn end_with_a_lost_answer_reports_attachments() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), lease_forever()).await;
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
        "the attachment is missing: {:?}",
        swept.ended[0]
    );
}

/// The end of a session is reported once.
#[tokio::test]
async fn end_is_reported_once() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), lease_forever()).await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE * 30);
    slow.fail(true);
    assert!(sessions.find_by_id(&ann(), id).await.is_err()); // closes the session, cannot write
    slow.fail(false);
    assert!(matches!(sessions.find_by_id(&ann(), id).await, Err(SessionOpenError::Ended(_))));
    let n = sessions.sweep().await.ended.len() + sessions.sweep().await.ended.len();
    assert_eq!(n, 1, "reported twice");
}

/// A key whose session is being ended can be opened again.
#[tokio::test]
async fn key_can_be_opened_after_a_cancelled_end() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), lease_forever()).await;
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

/// An end through an old reference does not affect the revived session.
#[tokio::test]
async fn repeated_end_does_not_affect_a_revived_session() {
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
    assert!(live != revived.session.is_closed(), "ended in the store, and open here");
    assert!(sessions.sweep().await.ended.is_empty(), "its links are closed while it is in use");
}

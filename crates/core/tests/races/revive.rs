//! Ended and revived sessions.

use std::sync::Arc;

use futures_util::future::join_all;
use stayput_core::Expiry;
use stayput_testkit::faulty::Faulty;

use crate::kit::{MINUTE, World, ann, chat, lease_forever};

/// Concurrent revivals of one session all succeed.
#[tokio::test]
async fn concurrent_revivals_succeed() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), lease_forever()).await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE * 30);
    let _ = sessions.sweep().await;
    let a = ann();
    let r = join_all((0..5).map(|_| sessions.revive(&a, id))).await;
    for r in &r {
        assert!(r.is_ok(), "{:?}", r.as_ref().unwrap_err());
    }
}

/// A lookup of a tombstone does not release a session that is being revived.
#[tokio::test]
async fn lookup_during_a_revival_keeps_the_claim() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    for lag in 0..12 {
        let sessions = world.on(slow.clone(), lease_forever()).await;
        let id = sessions.open(&chat("a")).await.unwrap().session.id();
        world.clock.advance(MINUTE * 30);
        let _ = sessions.sweep().await;
        let a = ann();
        let lookup = async {
            for _ in 0..lag {
                tokio::task::yield_now().await;
            }
            sessions.find_by_id(&a, id).await
        };
        let (revived, _) = futures_util::join!(sessions.revive(&a, id), lookup);
        let Ok(revived) = revived else { panic!("{revived:?}") };
        let holder = world.store.load(id).await.unwrap().unwrap().holder;
        let two = world.process().await;
        assert!(
            two.find_by_id(&a, id).await.is_err(),
            "lag {lag}: held here ({}), and claimed by another (holder was {holder:?})",
            !revived.session.is_closed()
        );
        drop(revived);
        sessions.close().await.unwrap();
        let x = two.find_by_id(&a, id).await.unwrap();
        two.end(x.session()).await.unwrap();
    }
}

/// Changes of an ended session are refused.
#[tokio::test]
async fn set_expiry_of_an_ended_session_is_refused() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    assert!(
        sessions.set_expiry(&opened.session, Expiry::NEVER).await.is_err(),
        "the expiry of an ended session was changed"
    );
}

#[tokio::test]
async fn handle_of_an_ended_session_is_refused() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    assert!(
        sessions.issue_handle(&opened.session).await.is_err(),
        "a handle of an ended session was issued"
    );
}

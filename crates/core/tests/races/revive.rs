//! Sessions that are over, and those that come back.

use std::sync::Arc;

use futures_util::future::join_all;
use stayput_core::Expiry;
use stayput_testkit::faulty::Faulty;

use crate::kit::{MINUTE, World, ann, chat, forever};

/// Revive by many at once.
#[tokio::test]
async fn revive_many() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE * 30);
    let _ = sessions.sweep().await;
    let a = ann();
    let r = join_all((0..5).map(|_| sessions.revive(&a, id))).await;
    for r in &r {
        assert!(r.is_ok(), "{:?}", r.as_ref().unwrap_err());
    }
}

/// A question about a tombstone must not unclaim what is being revived.
#[tokio::test]
async fn revive_and_look() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    for lag in 0..12 {
        let sessions = world.on(slow.clone(), forever()).await;
        let id = sessions.open(&chat("a")).await.unwrap().session.id();
        world.clock.advance(MINUTE * 30);
        let _ = sessions.sweep().await;
        let a = ann();
        let look = async {
            for _ in 0..lag {
                tokio::task::yield_now().await;
            }
            sessions.by_id(&a, id).await
        };
        let (revived, _) = futures_util::join!(sessions.revive(&a, id), look);
        let Ok(revived) = revived else { panic!("{revived:?}") };
        let holder = world.store.load(id).await.unwrap().unwrap().holder;
        let two = world.process().await;
        assert!(
            two.by_id(&a, id).await.is_err(),
            "lag {lag}: held here ({}), and claimed by another (holder was {holder:?})",
            !revived.session.is_over()
        );
        drop(revived);
        sessions.close().await.unwrap();
        let x = two.by_id(&a, id).await.unwrap();
        two.end(x.session()).await.unwrap();
    }
}

/// extend and issue_handle on a session that is over.
#[tokio::test]
async fn extend_over() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    assert!(
        sessions.extend(&opened.session, Expiry::NEVER).await.is_err(),
        "extend of a session that is over says Ok"
    );
}

#[tokio::test]
async fn handle_over() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    sessions.end(opened.session.session()).await.unwrap();
    assert!(
        sessions.issue_handle(&opened.session).await.is_err(),
        "a handle for a session that is over"
    );
}

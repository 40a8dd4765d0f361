//! Release of sessions when a process closes.

use std::sync::Arc;

use stayput_core::Expiry;
use stayput_testkit::faulty::Faulty;

use crate::kit::{MINUTE, World, chat, lease_forever, poll_steps};

/// A close during a sweep releases sessions and ends none.
#[tokio::test]
async fn close_during_sweep_ends_nothing() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), lease_forever()).await;
    for n in 0..8 {
        drop(sessions.open(&chat(&format!("due{n}")).expiry(Expiry::idle(MINUTE))).await.unwrap());
    }
    let mut keep = vec![];
    for n in 0..40 {
        keep.push(
            sessions
                .open(&chat(&format!("k{n}")).expiry(Expiry::NEVER))
                .await
                .unwrap()
                .session
                .id(),
        );
    }
    world.clock.advance(MINUTE);
    slow.hang(true);
    let mut sweep = Box::pin(sessions.sweep());
    poll_steps(&slow, &mut sweep, 1).await; // inside the first finish
    slow.hang(false);
    sessions.close().await.unwrap();
    slow.step();
    slow.step();
    let _ = sweep.await;
    let mut dead = 0;
    for id in &keep {
        if !world.store.load(*id).await.unwrap().unwrap().is_live() {
            dead += 1;
        }
    }
    assert_eq!(dead, 0, "sessions that never expire and were ended");
}

/// After a close no session is opened under the released lease.
#[tokio::test]
async fn closed_process_opens_no_session() {
    let world = World::new();
    let one = world.process().await;
    one.close().await.unwrap();
    let mine = one.open(&chat("a")).await;
    let two = world.process().await;
    let theirs = two.open(&chat("a")).await;
    assert!(
        !(mine.is_ok() && theirs.is_ok()),
        "two processes hold {:?}",
        theirs.unwrap().session.id()
    );
}

/// A close on a failing store still releases the sessions.
#[tokio::test]
async fn failed_close_releases_sessions() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), lease_forever()).await;
    let session = sessions.open(&chat("a")).await.unwrap().session.session().clone();
    slow.fail(true);
    assert!(sessions.close().await.is_err());
    slow.fail(false);
    assert!(session.is_closed() && sessions.held_sessions().is_empty(), "not released");
}

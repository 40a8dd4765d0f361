//! Delayed, cancelled and refused sweeps.

use std::sync::Arc;

use stayput_core::{Expiry, LeaseRenewal, Settings};
use stayput_testkit::faulty::Faulty;

use crate::kit::{MINUTE, World, chat, lease_forever, poll_steps};

/// 256 sessions above their maximum age that are in use do not starve the sweep.
#[tokio::test]
async fn sweep_is_not_starved_by_sessions_in_use() {
    let world = World::new();
    let sessions = world.process().await;
    let mut in_use = vec![];
    for n in 0..256 {
        in_use.push(sessions.open(&chat(&n.to_string())).await.unwrap());
    }
    world.clock.advance(MINUTE);
    let dead =
        world.on(world.store.clone(), Settings { lease: MINUTE, ..Settings::default() }).await;
    let id = dead
        .open(&chat("dead").expiry(Expiry { idle: None, absolute: Some(MINUTE * 60 * 24) }))
        .await
        .unwrap()
        .session
        .id();
    world.clock.advance(MINUTE * 60 * 48);
    for _ in 0..10 {
        sessions.flush().await.unwrap();
        let _ = sessions.sweep().await;
    }
    assert!(
        !world.store.load(id).await.unwrap().unwrap().is_live(),
        "it is live after ten sweeps, a day after its maximum age"
    );
}

/// The next sweep reports the sessions that a cancelled one ended.
#[tokio::test]
async fn cancelled_sweep_is_reported_by_the_next_one() {
    let world = World::new();
    let dead =
        world.on(world.store.clone(), Settings { lease: MINUTE, ..Settings::default() }).await;
    drop(dead.open(&chat("a")).await.unwrap());
    world.clock.advance(MINUTE * 30);
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), lease_forever()).await;
    slow.hang(true);
    let mut sweep = Box::pin(sessions.sweep());
    while !world.store.list(None, None, 9).await.unwrap().is_empty() {
        assert!(!poll_steps(&slow, &mut sweep, 1).await, "the sweep ended nothing");
    }
    drop(sweep);
    slow.hang(false);
    assert_eq!(sessions.sweep().await.ended.len(), 1, "ended and not reported");
}

/// A sweep that overlaps a lost lease does not end sessions that were opened again.
#[tokio::test]
async fn sweep_during_a_lease_loss_ends_no_reopened_session() {
    // The snapshot of the sweep holds sessions that were released meanwhile.
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions =
        world.on(slow.clone(), Settings { lease: MINUTE * 10, ..Settings::default() }).await;
    for n in 0..8 {
        drop(sessions.open(&chat(&format!("due{n}")).expiry(Expiry::idle(MINUTE))).await.unwrap());
    }
    for n in 0..20 {
        drop(sessions.open(&chat(&format!("k{n}")).expiry(Expiry::NEVER)).await.unwrap());
    }
    world.clock.advance(MINUTE * 5);
    slow.hang(true);
    let mut sweep = Box::pin(sessions.sweep());
    poll_steps(&slow, &mut sweep, 1).await;
    slow.hang(false);
    world.clock.advance(MINUTE * 10);
    assert_eq!(sessions.renew().await.unwrap(), LeaseRenewal::Replaced);
    let mut reopened = vec![];
    for n in 0..20 {
        reopened.push(sessions.open(&chat(&format!("k{n}"))).await.unwrap());
    }
    slow.step();
    slow.step();
    let _ = sweep.await;
    let mut dead = 0;
    for opened in &reopened {
        if !world.store.load(opened.session.id()).await.unwrap().unwrap().is_live() {
            dead += 1;
        }
    }
    assert_eq!(dead, 0, "sessions in use with expiry NEVER that a sweep ended");
}

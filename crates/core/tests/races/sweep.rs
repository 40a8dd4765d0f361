//! A sweep that is held up, cancelled or refused.

use std::sync::Arc;

use stayput_core::{Expiry, Renewed, Settings};
use stayput_testkit::faulty::Faulty;

use crate::kit::{MINUTE, World, chat, forever, poll_steps};

/// 256 sessions that are past their age but in use must not starve the sweep.
#[tokio::test]
async fn sweep_is_not_starved() {
    let world = World::new();
    let sessions = world.process().await;
    let mut inuse = vec![];
    for n in 0..256 {
        inuse.push(sessions.open(&chat(&n.to_string())).await.unwrap());
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
        "a day too old and ten sweeps later it lives"
    );
}

/// A sweep that is cancelled still tells what it ended.
#[tokio::test]
async fn cancelled_sweep_tells() {
    let world = World::new();
    let dead =
        world.on(world.store.clone(), Settings { lease: MINUTE, ..Settings::default() }).await;
    drop(dead.open(&chat("a")).await.unwrap());
    world.clock.advance(MINUTE * 30);
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), forever()).await;
    slow.hang(true);
    let mut sweep = Box::pin(sessions.sweep());
    while !world.store.list(None, None, 9).await.unwrap().is_empty() {
        assert!(!poll_steps(&slow, &mut sweep, 1).await, "the sweep ended nothing");
    }
    drop(sweep);
    slow.hang(false);
    assert_eq!(sessions.sweep().await.ended.len(), 1, "ended, and nobody was told");
}

/// One session that cannot be ended does not keep the others from ending.
#[tokio::test]
async fn sweep_lost_reopen() {
    // sweep × renew(lost) × reopen: sweep'sessions snapshot holds an old Arc whose `ending` was set by let_go.
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
    assert_eq!(sessions.renew().await.unwrap(), Renewed::Regained);
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
    assert_eq!(dead, 0, "of 20 sessions in use, with expiry NEVER, ended by a sweep");
}

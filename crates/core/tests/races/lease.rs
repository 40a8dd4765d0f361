//! A lease that is lost.

use std::sync::Arc;

use stayput_core::{Renewed, Settings};
use stayput_testkit::faulty::Faulty;

use crate::kit::{MINUTE, World, before_id, chat, poll_steps};

/// renew: lost, then hold fails: the lost sessions must be told some time.
#[tokio::test]
async fn lost_sessions_are_told_even_if_hold_fails() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), Settings { lease: MINUTE, ..Settings::default() }).await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE);
    slow.hang(true);
    let mut renew = Box::pin(sessions.renew());
    poll_steps(&slow, &mut renew, 3).await; // renew answered, inside hold
    drop(renew); // or: hold answers Unavailable
    slow.hang(false);
    assert_eq!(sessions.renew().await.unwrap(), Renewed::Regained);
    let lost: Vec<_> = sessions.lost().iter().map(|session| session.id()).collect();
    assert_eq!(lost, [id], "nobody is told that it was lost");
}

/// A claim made under the old lease is not held under the new one.
#[tokio::test]
async fn claim_in_flight_over_lease_loss() {
    let world = World::new();
    let before = world.process().await;
    drop(before.open(&chat("a")).await.unwrap());
    before.close().await.unwrap();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), Settings { lease: MINUTE, ..Settings::default() }).await;
    slow.hang(true);
    let wish = chat("a");
    let mut opening = Box::pin(sessions.open(&wish));
    poll_steps(&slow, &mut opening, 3).await; // insert answered Taken; claim done, answer on its way
    assert!(world.store.load(before_id(&world).await).await.unwrap().unwrap().holder.is_some());
    slow.hang(false);
    world.clock.advance(MINUTE); // the process slept
    assert_eq!(sessions.renew().await.unwrap(), Renewed::Regained);
    slow.step();
    slow.step();
    let mine = opening.await;
    let two = world.process().await;
    let theirs = two.open(&chat("a")).await;
    assert!(!(mine.is_ok() && theirs.is_ok()), "two processes hold one session");
}

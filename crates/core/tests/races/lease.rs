//! Loss of the lease.

use std::sync::Arc;

use stayput_core::{LeaseRenewal, Settings};
use stayput_testkit::faulty::Faulty;

use crate::kit::{MINUTE, World, chat, id_of_key_a, poll_steps};

/// Released sessions are claimed again even if acquiring a new lease was cancelled.
#[tokio::test]
async fn released_sessions_are_claimed_again_after_a_cancelled_renewal() {
    let world = World::new();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), Settings { lease: MINUTE, ..Settings::default() }).await;
    let id = sessions.open(&chat("a")).await.unwrap().session.id();
    world.clock.advance(MINUTE);
    slow.hang(true);
    let mut renew = Box::pin(sessions.renew());
    poll_steps(&slow, &mut renew, 3).await; // renewal refused, inside acquire_lease
    drop(renew); // same as an error of acquire_lease
    slow.hang(false);
    assert_eq!(sessions.renew().await.unwrap(), LeaseRenewal::Replaced);
    assert!(sessions.held_sessions().is_empty());
    sessions.reclaim().await;
    let held: Vec<_> = sessions.held_sessions().iter().map(|session| session.id()).collect();
    assert_eq!(held, [id], "not known as released");
}

/// A claim under the old lease is not held under the new one.
#[tokio::test]
async fn claim_in_flight_is_dropped_when_the_lease_is_lost() {
    let world = World::new();
    let before = world.process().await;
    drop(before.open(&chat("a")).await.unwrap());
    before.close().await.unwrap();
    let slow = Arc::new(Faulty::new(world.store.clone()));
    let sessions = world.on(slow.clone(), Settings { lease: MINUTE, ..Settings::default() }).await;
    slow.hang(true);
    let options = chat("a");
    let mut opening = Box::pin(sessions.open(&options));
    poll_steps(&slow, &mut opening, 3).await; // insert answered Taken; claim done, answer on its way
    assert!(world.store.load(id_of_key_a(&world).await).await.unwrap().unwrap().holder.is_some());
    slow.hang(false);
    world.clock.advance(MINUTE); // the process slept
    assert_eq!(sessions.renew().await.unwrap(), LeaseRenewal::Replaced);
    slow.step();
    slow.step();
    let mine = opening.await;
    let two = world.process().await;
    let theirs = two.open(&chat("a")).await;
    assert!(!(mine.is_ok() && theirs.is_ok()), "two processes hold one session");
}

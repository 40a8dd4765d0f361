//! Connections, and the sessions they lead to.

use stayput_core::{CONNECTIONS_PER_SESSION, Handle, SessionLimits, Wish};

use crate::{MINUTE, World, ann, chat, eve};

/// A client's connection outlives the process, and is its owner's alone.
#[tokio::test]
async fn a_connection_is_found_after_a_restart() {
    let world = World::new();
    let one = world.process().await;
    let opened = one.open(&chat("a")).await.unwrap();
    let (name, id) = (Handle::generate(), opened.session.id());
    one.connect(&opened.session, &name, b"2025-11-25").await.unwrap();
    drop(opened);
    one.close().await.unwrap();
    let two = world.process().await;
    let found = two.connection(&ann(), &name).await.unwrap();
    assert_eq!(found, Some((id, b"2025-11-25".to_vec())));
    assert_eq!(two.connection(&eve(), &name).await.unwrap(), None);
    two.disconnect(&eve(), &name).await.unwrap();
    assert_eq!(two.by_id(&ann(), id).await.unwrap().id(), id);
    two.disconnect(&ann(), &name).await.unwrap();
    assert_eq!(two.connection(&ann(), &name).await.unwrap(), None);
}

/// R062: clients that connect anew and never say goodbye do not fill the store while their session lives on; who
/// comes back within the idle time is known, also to the next process.
#[tokio::test]
async fn connections_that_nobody_uses_leave_the_store() {
    let world = World::new();
    let one = world.process().await;
    let opened = one.open(&chat("a")).await.unwrap();
    let names: Vec<_> = (0..CONNECTIONS_PER_SESSION + 3).map(|_| Handle::generate()).collect();
    for name in &names {
        one.connect(&opened.session, name, b"").await.unwrap();
    }
    // The first is used all the time, the second within the idle time, others never again.
    for minute in 0..40 {
        world.clock.advance(MINUTE);
        one.used(&[names[0].hash(&ann())]).await.unwrap();
        if minute == 15 {
            one.used(&[names[1].hash(&ann())]).await.unwrap();
        }
    }
    for _ in 0..CONNECTIONS_PER_SESSION {
        one.connect(&opened.session, &Handle::generate(), b"").await.unwrap();
    }
    drop(opened);
    one.close().await.unwrap();
    let two = world.process().await;
    let mut known = Vec::new();
    for (number, name) in names.iter().enumerate() {
        if two.connection(&ann(), name).await.unwrap().is_some() {
            known.push(number);
        }
    }
    assert_eq!(known, [0, 1]);
}

/// Whatever becomes of an open, the connection that was wished for leads to what it gave: to a session that was made,
/// that is held, or that somebody else has left.
#[tokio::test]
async fn a_session_is_opened_with_its_connection() {
    let world = World::new();
    let one = world.process().await;
    let made = Handle::generate();
    let opened = one.open(&chat("a").connected(made.clone(), b"made".to_vec())).await.unwrap();
    let id = opened.session.id();
    let held = Handle::generate();
    let again = one.open(&chat("a").connected(held.clone(), b"held".to_vec())).await.unwrap();
    assert_eq!(again.session.id(), id);
    one.close().await.unwrap();
    let (two, left) = (world.process().await, Handle::generate());
    let found = two.open(&chat("a").connected(left.clone(), b"left".to_vec())).await.unwrap();
    assert_eq!(found.session.id(), id);
    for (name, body) in [(made, "made"), (held, "held"), (left, "left")] {
        let kept = two.connection(&ann(), &name).await.unwrap();
        assert_eq!(kept, Some((id, body.as_bytes().to_vec())));
        assert_eq!(two.connection(&eve(), &name).await.unwrap(), None);
    }
}

/// A new session and its connection are one step of the store.
#[tokio::test]
async fn a_new_session_and_its_connection_are_one_step() {
    let (store, sessions) = World::new().faulty_process(SessionLimits::default()).await;
    store.asked();
    let wish = Wish::new(ann()).connected(Handle::generate(), Vec::new());
    let _opened = sessions.open(&wish).await.unwrap();
    assert_eq!(store.asked(), ["insert"]);
}

/// Invariant 6: an open that is cancelled at any point leaves nothing of a session that nobody can find, nor of the
/// connection that led to it.
#[tokio::test]
async fn a_cancelled_open_leaves_no_connection() {
    let world = World::new();
    let (slow, sessions) = world.faulty_process(SessionLimits::default()).await;
    for steps in 1.. {
        let name = Handle::generate();
        let wish = Wish::new(ann()).connected(name.clone(), Vec::new());
        if slow.cut(steps, sessions.open(&wish)).await.is_some() {
            assert!(steps > 2, "there was nothing to cancel it at");
            return;
        }
        let _swept = sessions.sweep().await;
        assert!(sessions.held().is_empty());
        assert!(world.store.connection(name.hash(&ann())).await.unwrap().is_none());
        let left = world.store.list(None, None, 9).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
        assert!(steps < 100, "the open never ends");
    }
}

//! Connections of clients.

use stayput_core::{Handle, OpenOptions, RETAINED_CONNECTIONS_PER_SESSION, SessionLimits};

use crate::{MINUTE, World, ann, chat, eve};

/// A connection outlives the process, and only its owner finds it.
#[tokio::test]
async fn connection_is_found_after_a_restart() {
    let world = World::new();
    let one = world.process().await;
    let opened = one.open(&chat("a")).await.unwrap();
    let (name, id) = (Handle::generate(), opened.session.id());
    one.put_connection(&opened.session, &name, b"2025-11-25").await.unwrap();
    drop(opened);
    one.close().await.unwrap();
    let two = world.process().await;
    let found = two.find_connection(&ann(), &name).await.unwrap();
    assert_eq!(found, Some((id, b"2025-11-25".to_vec())));
    assert_eq!(two.find_connection(&eve(), &name).await.unwrap(), None);
    two.remove_connection(&eve(), &name).await.unwrap();
    assert_eq!(two.find_by_id(&ann(), id).await.unwrap().id(), id);
    two.remove_connection(&ann(), &name).await.unwrap();
    assert_eq!(two.find_connection(&ann(), &name).await.unwrap(), None);
}

/// R170: clients that reconnect and never disconnect do not fill the store while their session lives. A client that
/// returns within the idle time is known, also to the next process.
#[tokio::test]
async fn unused_connections_are_removed() {
    let world = World::new();
    let one = world.process().await;
    let opened = one.open(&chat("a")).await.unwrap();
    let names: Vec<_> =
        (0..RETAINED_CONNECTIONS_PER_SESSION + 3).map(|_| Handle::generate()).collect();
    for name in &names {
        one.put_connection(&opened.session, name, b"").await.unwrap();
    }
    // The first one is used constantly, the second one within the idle time, the others never again.
    for minute in 0..40 {
        world.clock.advance(MINUTE);
        one.touch_connections(&[names[0].hash(&ann())]).await.unwrap();
        if minute == 15 {
            one.touch_connections(&[names[1].hash(&ann())]).await.unwrap();
        }
    }
    for _ in 0..RETAINED_CONNECTIONS_PER_SESSION {
        one.put_connection(&opened.session, &Handle::generate(), b"").await.unwrap();
    }
    drop(opened);
    one.close().await.unwrap();
    let two = world.process().await;
    let mut known = Vec::new();
    for (number, name) in names.iter().enumerate() {
        if two.find_connection(&ann(), name).await.unwrap().is_some() {
            known.push(number);
        }
    }
    assert_eq!(known, [0, 1]);
}

/// The requested connection leads to the opened session: a new one, a held one, or one that another process released.
#[tokio::test]
async fn open_connects_new_held_and_stored_sessions() {
    let world = World::new();
    let one = world.process().await;
    let made = Handle::generate();
    let opened = one.open(&chat("a").connection(made.clone(), b"made".to_vec())).await.unwrap();
    let id = opened.session.id();
    let held = Handle::generate();
    let again = one.open(&chat("a").connection(held.clone(), b"held".to_vec())).await.unwrap();
    assert_eq!(again.session.id(), id);
    one.close().await.unwrap();
    let (two, left) = (world.process().await, Handle::generate());
    let found = two.open(&chat("a").connection(left.clone(), b"left".to_vec())).await.unwrap();
    assert_eq!(found.session.id(), id);
    for (name, body) in [(made, "made"), (held, "held"), (left, "left")] {
        let kept = two.find_connection(&ann(), &name).await.unwrap();
        assert_eq!(kept, Some((id, body.as_bytes().to_vec())));
        assert_eq!(two.find_connection(&eve(), &name).await.unwrap(), None);
    }
}

/// A new session and its connection are stored in one call.
#[tokio::test]
async fn new_session_and_connection_are_one_store_call() {
    let (store, sessions) = World::new().faulty_process(SessionLimits::default()).await;
    store.asked();
    let options = OpenOptions::new(ann()).connection(Handle::generate(), Vec::new());
    let _opened = sessions.open(&options).await.unwrap();
    assert_eq!(store.asked(), ["insert"]);
}

/// Invariant 6: an open that is cancelled at any point leaves no session that cannot be found, and no connection to it.
#[tokio::test]
async fn cancelled_open_leaves_no_connection() {
    let world = World::new();
    let (slow, sessions) = world.faulty_process(SessionLimits::default()).await;
    for steps in 1.. {
        let name = Handle::generate();
        let options = OpenOptions::new(ann()).connection(name.clone(), Vec::new());
        if slow.cut(steps, sessions.open(&options)).await.is_some() {
            assert!(steps > 2, "the open had no step to cancel");
            return;
        }
        let _swept = sessions.sweep().await;
        assert!(sessions.held_sessions().is_empty());
        assert!(world.store.load_connection(name.hash(&ann())).await.unwrap().is_none());
        let left = world.store.list(None, None, 9).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
        assert!(steps < 100, "the open never ends");
    }
}

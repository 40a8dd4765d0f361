//! Handling of secrets.

use stayput_core::{Connection, Handle, Timestamp};

use crate::kit::{World, ann, chat};

/// The handles in memory are those in the store.
#[tokio::test]
async fn dropped_handle_is_unknown_here_and_in_the_store() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let first = sessions.issue_handle(&opened.session).await.unwrap();
    drop(sessions.find_by_handle(&ann(), &first).await.unwrap());
    for _ in 0..1000 {
        let handle = sessions.issue_handle(&opened.session).await.unwrap();
        drop(sessions.find_by_handle(&ann(), &handle).await.unwrap());
    }
    let stored = world.store.find_by_handle(first.hash(&ann())).await.unwrap().is_some();
    assert_eq!(
        sessions.find_by_handle(&ann(), &first).await.is_ok(),
        stored,
        "here and in the store"
    );
}

/// `Debug` output contains no body of a connection.
#[tokio::test]
async fn debug_output_hides_connection_bodies() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let name = Handle::generate().hash(&ann());
    world
        .store
        .put_connection(
            &Connection {
                name,
                session: opened.session.id(),
                last_used: Timestamp::MAX,
                body: b"hunter2".to_vec(),
            },
            Timestamp::MAX,
            opened.session.record().holder,
        )
        .await
        .unwrap();
    let bytes = format!("{:?}", b"hunter2".to_vec());
    let bytes = &bytes[1..bytes.len() - 1];
    assert!(
        !format!("{:?}", sessions.state(&opened.session).unwrap()).contains(bytes),
        "Debug of State shows the store"
    );
}

/// Errors contain no value.
#[tokio::test]
async fn decode_error_hides_the_value() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let state = sessions.state(&opened.session).unwrap();
    state.set("token", "hunter2").await.unwrap();
    let error = state.get::<u32>("token").await.unwrap_err();
    assert!(
        !format!("{error:?} {:?}", std::error::Error::source(&error).map(ToString::to_string))
            .contains("hunter2"),
        "{error:?}"
    );
}

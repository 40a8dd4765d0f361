//! What is remembered of secrets, and what is shown of them.

use stayput_core::{Connection, Handle, Timestamp};

use crate::kit::{World, ann, chat};

/// The handles a process remembers are those the store knows.
#[tokio::test]
async fn handles() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let first = sessions.issue_handle(&opened.session).await.unwrap();
    drop(sessions.by_handle(&ann(), &first).await.unwrap());
    for _ in 0..1000 {
        let h = sessions.issue_handle(&opened.session).await.unwrap();
        drop(sessions.by_handle(&ann(), &h).await.unwrap());
    }
    let stored = world.store.find_handle(first.hash(&ann())).await.unwrap().is_some();
    assert_eq!(sessions.by_handle(&ann(), &first).await.is_ok(), stored, "here and in the store");
}

/// Debug shows no connection's body.
#[tokio::test]
async fn debug() {
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
                used: Timestamp::MAX,
                body: b"hunter2".to_vec(),
            },
            Timestamp::MAX,
            opened.session.record().holder,
        )
        .await
        .unwrap();
    world.store.put_content(b"hunter2").await.unwrap();
    let bytes = format!("{:?}", b"hunter2".to_vec());
    let bytes = &bytes[1..bytes.len() - 1];
    assert!(
        !format!("{:?}", sessions.state(&opened.session).unwrap()).contains(bytes),
        "Debug of State dumps the whole store"
    );
}

/// Errors show no value.
#[tokio::test]
async fn decode() {
    let world = World::new();
    let sessions = world.process().await;
    let opened = sessions.open(&chat("a")).await.unwrap();
    let st = sessions.state(&opened.session).unwrap();
    st.set("token", "hunter2").await.unwrap();
    let e = st.get::<u32>("token").await.unwrap_err();
    assert!(
        !format!("{e:?} {:?}", std::error::Error::source(&e).map(ToString::to_string))
            .contains("hunter2"),
        "{e:?}"
    );
}

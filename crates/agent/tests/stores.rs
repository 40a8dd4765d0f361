//! Sessions that outlive the process: released by one hub, gone on with by the next.
#![cfg(feature = "stores")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

mod world;

use std::time::Duration;

use serde_json::json;
use stayput::{Error, Http, Hub, Session};
use stayput_testkit::mcp::TestServer;
use world::{LONG, Token};

struct World {
    token: Token,
    server: TestServer,
    folder: tempfile::TempDir,
    store: String,
}

impl World {
    async fn new(store: Option<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = || format!("sqlite:{}", folder.path().join("sessions.db").display());
        let store = store.unwrap_or_else(own);
        let server = TestServer::http(&["--era", "legacy"]).await;
        Self { token: Token::new(), server, folder, store }
    }

    fn hub(&self) -> Hub {
        Hub::builder()
            .server("counter", self.token.server())
            .server("remote", Http::new(self.server.url()))
            .store(&self.store)
            .folders(self.folder.path().join("folders"))
            .build()
            .unwrap()
    }
}

async fn next(session: &Session, server: &str) -> Result<u64, Error> {
    let counted = session.call(server, "count", json!({})).await?;
    Ok(counted.text().parse().unwrap())
}

/// R096, R118, E07, E08, §4.7: a named session goes on after its hub was closed, on an HTTP server without a loss and
/// without a handshake, on a child process with one; what is unnamed has ended.
async fn goes_on(store: Option<String>) {
    let world = World::new(store).await;
    let hub = world.hub();
    let session = hub.session("chat").await.unwrap();
    assert_eq!(next(&session, "remote").await.unwrap(), 1);
    // One to learn how it is spoken to.
    let deleted = world.server.counted("deletes").await;
    assert_eq!(next(&session, "counter").await.unwrap(), 1);
    let run = hub.run(async { hub.call("remote", "count", json!({})).await.unwrap().text() }).await;
    assert_eq!(run, "1");
    let alone = hub.ephemeral();
    assert_eq!(next(&alone, "remote").await.unwrap(), 1);
    let opened = world.server.counted("initialize").await;
    let id = session.id();
    let report = hub.close(LONG).await;
    assert_eq!((report.opened, report.sessions, report.killed), (4, 2, 0));
    assert!(matches!(next(&session, "remote").await, Err(Error::Closed)));
    assert!(world.token.alive().is_empty());
    assert_eq!(world.server.counted("deletes").await, deleted + 2, "the run, and the unnamed one");

    let hub = world.hub();
    let session = hub.session("chat").await.unwrap();
    assert_eq!(session.id(), id);
    assert_eq!(next(&session, "remote").await.unwrap(), 2);
    assert_eq!(world.server.counted("initialize").await, opened, "it was not greeted again");
    let lost = next(&session, "counter").await.unwrap_err();
    assert_eq!(lost.state_lost().and_then(|it| it.server()), Some("counter"), "{lost}");
    assert_eq!(next(&session, "counter").await.unwrap(), 1);
    session.end().await.unwrap();
    assert!(matches!(hub.find("chat").await, Err(Error::UnknownSession)));
    assert_eq!(world.server.counted("deletes").await, deleted + 3);
    hub.close(LONG).await;
    assert!(world.token.alive().is_empty());
}

#[tokio::test]
async fn sqlite_sessions_go_on() {
    goes_on(None).await;
}

mod postgres {
    #[tokio::test]
    async fn sessions_go_on() {
        let store = stayput_testkit::postgres::PostgresUrl::empty();
        super::goes_on(Some(store.url.clone())).await;
    }
}

mod redis {
    #[tokio::test]
    async fn sessions_go_on() {
        let store = stayput_testkit::redis::RedisUrl::empty();
        super::goes_on(Some(store.url.clone())).await;
    }
}

/// §7, E08: a hub whose lease is kept by nobody loses its sessions to the next, and a session that another hub
/// holds is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_taken_over() {
    let world = World::new(None).await;
    let (one, two) = (world.hub(), world.hub());
    let session = one.session("chat").await.unwrap();
    assert_eq!(next(&session, "remote").await.unwrap(), 1);
    let taking = tokio::spawn(async move {
        let session = two.session("chat").await?;
        let counted = next(&session, "remote").await;
        two.close(LONG).await;
        counted
    });
    // Longer than one look, shorter than its patience.
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(!taking.is_finished(), "it is held");
    one.close(LONG).await;
    assert_eq!(taking.await.unwrap().unwrap(), 2);
}

/// R011, E26: with a store that answers later, too, a run that is dropped anywhere leaves nothing, and one that goes
/// on is not taken for what a dropped call left.
#[tokio::test]
async fn a_run_survives_a_dropped_first_call() {
    let world = World::new(None).await;
    let hub = world.hub();
    hub.run(async {
        for _ in 0..20 {
            let first = hub.call("counter", "count", json!({}));
            let _ = tokio::time::timeout(Duration::ZERO, first.into_future()).await;
        }
        let before: u64 =
            hub.call("counter", "count", json!({})).await.unwrap().text().parse().unwrap();
        // Longer than it takes to sweep.
        tokio::time::sleep(Duration::from_secs(6)).await;
        let after: u64 =
            hub.call("counter", "count", json!({})).await.unwrap().text().parse().unwrap();
        assert_eq!(after, before + 1);
    })
    .await;
    assert!(world.token.alive().is_empty());
}

/// A store needs a place for its key. Nothing is made before that is known.
#[test]
fn a_store_needs_folders() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.db");
    let error = Hub::builder().store(&format!("sqlite:{}", file.display())).build().unwrap_err();
    assert!(error.to_string().contains("folders"), "{error}");
    assert!(!file.exists());
}

//! Sessions that outlive the process: released by one hub, gone on with by the next.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::world::{LONG, Token};
use serde_json::json;
use stayput::{Builder, Error, Http, Hub, Session};
use stayput_testkit::mcp::TestServer;

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
        let builder = Hub::builder().server("counter", self.token.server());
        hub_in(builder, self.folder.path(), &self.store, self.server.url())
    }
}

fn hub_in(builder: Builder, folder: &Path, store: &str, url: &str) -> Hub {
    let builder = builder.server("remote", Http::new(url)).store(store);
    builder.folders(folder.join("folders")).build().unwrap()
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

/// §7, E08: a session that another hub holds is waited for.
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

/// Another process with a hub, of whose sessions one is asked for. Run by the harness like the others, it is nothing.
#[tokio::test]
async fn the_holder() {
    let Ok(url) = std::env::var("HOLDER_SERVER") else { return };
    let folder = std::path::PathBuf::from(std::env::var_os("HOLDER_FOLDER").unwrap());
    let hub = hub_in(Hub::builder(), &folder, &std::env::var("HOLDER_STORE").unwrap(), &url);
    let session = hub.session("chat").await.unwrap();
    // One call for each line it is sent.
    for line in std::io::stdin().lines() {
        line.unwrap();
        let counted = next(&session, "remote").await;
        println!("\nSAID {}", counted.map_or_else(|error| error.to_string(), |it| it.to_string()));
    }
}

/// The other process. Dropped, it is killed.
struct OtherProcess {
    process: std::process::Child,
    said: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl OtherProcess {
    fn start(world: &World) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "stores::the_holder", "--nocapture", "--test-threads=1"])
            .env("HOLDER_SERVER", world.server.url())
            .env("HOLDER_STORE", &world.store)
            .env("HOLDER_FOLDER", world.folder.path());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, said }
    }

    fn ask(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut said = self.said.by_ref().map_while(Result::ok);
        said.find_map(|line| line.strip_prefix("SAID ").map(str::to_owned)).unwrap()
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// §7, R118, E07: a process that was killed keeps its sessions from nobody for longer than its lease runs, and what
/// it had on an HTTP server goes on.
#[tokio::test]
async fn the_lease_of_a_killed_process_runs_out() {
    let world = World::new(None).await;
    let mut other = OtherProcess::start(&world);
    other.ask();
    assert_eq!(other.hear(), "1");
    other.signal("-KILL");
    let greeted = world.server.counted("initialize").await;
    let hub = world.hub();
    let session = hub.session("chat").await.unwrap();
    assert_eq!(next(&session, "remote").await.unwrap(), 2);
    assert_eq!(world.server.counted("initialize").await, greeted, "it was not greeted again");
    hub.close(LONG).await;
}

/// §7: a process that stood still for longer than its lease sends nothing on a session that another one has by now;
/// when that lets go of it, it goes on.
#[tokio::test]
async fn a_process_that_lost_its_lease_sends_nothing() {
    let world = World::new(None).await;
    let mut other = OtherProcess::start(&world);
    other.ask();
    assert_eq!(other.hear(), "1");
    other.signal("-STOP");
    let hub = world.hub();
    let session = hub.session("chat").await.unwrap();
    assert_eq!(next(&session, "remote").await.unwrap(), 2);
    other.ask();
    other.signal("-CONT");
    // Time enough for it to send what it must not.
    for number in 3..23 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(next(&session, "remote").await.unwrap(), number);
    }
    hub.close(LONG).await;
    assert_eq!(other.hear(), "23");
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

//! Sessions in a store: released by one hub, continued by the next.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::support::{ProcessMarker, TEST_TIMEOUT};
use futures_util::future::join_all;
use serde_json::json;
use stayput::{Builder, Error, Http, Hub, Session};
use stayput_testkit::mcp::TestServer;

/// Number of concurrent calls in one test.
const CALLS: usize = 40;

/// Lease of all hubs, short so that the tests are.
const LEASE: Duration = Duration::from_secs(3);

struct Fixture {
    marker: ProcessMarker,
    server: TestServer,
    folder: tempfile::TempDir,
    store: String,
}

impl Fixture {
    async fn new(store: Option<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = || format!("sqlite:{}", folder.path().join("sessions.db").display());
        let store = store.unwrap_or_else(own);
        let server = TestServer::http(&["--era", "legacy"]).await;
        Self { marker: ProcessMarker::new(), server, folder, store }
    }

    async fn hub(&self) -> Hub {
        // Longer than the lease: a killed process cannot give up its child processes.
        let builder = Hub::builder().takeover_timeout(LEASE * 3);
        let builder = builder.server("counter", self.marker.server());
        hub_in(builder, self.folder.path(), &self.store, self.server.url()).await
    }
}

async fn hub_in(builder: Builder, folder: &Path, store: &str, url: &str) -> Hub {
    let builder = builder.server("remote", Http::new(url)).store(store);
    builder.lease(LEASE).folders(folder.join("folders")).open().await.unwrap()
}

async fn count_on(session: &Session, server: &str) -> Result<u64, Error> {
    let counted = session.call(server, "count", json!({})).await?;
    Ok(counted.text().parse().unwrap())
}

/// R096, R118, E07, E08, §4.7: a named session continues after its hub was closed, on an HTTP server without a loss
/// and without a handshake, on a child process with a loss. Unnamed sessions end.
async fn check_continuation(store: Option<String>) {
    let fixture = Fixture::new(store).await;
    let hub = fixture.hub().await;
    let session = hub.session("chat").await.unwrap();
    assert_eq!(count_on(&session, "remote").await.unwrap(), 1);
    // The first link, which learns the protocol version, is already deleted.
    let deleted = fixture.server.counted("deletes").await;
    assert_eq!(count_on(&session, "counter").await.unwrap(), 1);
    let run = hub.run(async { hub.call("remote", "count", json!({})).await.unwrap().text() }).await;
    assert_eq!(run, "1");
    let alone = hub.ephemeral();
    assert_eq!(count_on(&alone, "remote").await.unwrap(), 1);
    let opened = fixture.server.counted("initialize").await;
    let id = session.id();
    let report = hub.close(TEST_TIMEOUT).await;
    assert_eq!((report.opened, report.sessions, report.killed), (4, 2, 0));
    assert!(matches!(count_on(&session, "remote").await, Err(Error::HubClosed)));
    assert!(fixture.marker.processes().is_empty());
    assert_eq!(
        fixture.server.counted("deletes").await,
        deleted + 2,
        "the run and the unnamed session"
    );

    let hub = fixture.hub().await;
    let session = hub.session("chat").await.unwrap();
    assert_eq!(session.id(), id);
    assert_eq!(count_on(&session, "remote").await.unwrap(), 2);
    assert_eq!(fixture.server.counted("initialize").await, opened, "there was no second handshake");
    let lost = count_on(&session, "counter").await.unwrap_err();
    assert_eq!(lost.state_lost().and_then(|it| it.server()), Some("counter"), "{lost}");
    assert_eq!(count_on(&session, "counter").await.unwrap(), 1);
    session.end().await.unwrap();
    assert!(matches!(hub.find("chat").await, Err(Error::UnknownSession)));
    assert_eq!(fixture.server.counted("deletes").await, deleted + 3);
    hub.close(TEST_TIMEOUT).await;
    assert!(fixture.marker.processes().is_empty());
}

#[tokio::test]
async fn sqlite_sessions_continue_after_close() {
    check_continuation(None).await;
}

mod postgres {
    #[tokio::test]
    async fn sessions_continue_after_close() {
        let store = stayput_testkit::postgres::PostgresUrl::empty();
        super::check_continuation(Some(store.url.clone())).await;
    }
}

mod redis {
    #[tokio::test]
    async fn sessions_continue_after_close() {
        let store = stayput_testkit::redis::RedisUrl::empty();
        super::check_continuation(Some(store.url.clone())).await;
    }
}

/// §7, E08.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_waits_for_a_session_that_another_hub_holds() {
    let fixture = Fixture::new(None).await;
    let (one, two) = (fixture.hub().await, fixture.hub().await);
    let session = one.session("chat").await.unwrap();
    assert_eq!(count_on(&session, "remote").await.unwrap(), 1);
    let taking = tokio::spawn(async move {
        let session = two.session("chat").await?;
        let counted = count_on(&session, "remote").await;
        two.close(TEST_TIMEOUT).await;
        counted
    });
    // Longer than one poll interval, shorter than the takeover timeout.
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(!taking.is_finished(), "the session is held");
    one.close(TEST_TIMEOUT).await;
    assert_eq!(taking.await.unwrap().unwrap(), 2);
}

/// R011, E26: also with a store that answers late, a dropped run leaves nothing, and a continuing run is not mistaken
/// for the remains of a dropped call.
#[tokio::test]
async fn run_survives_a_dropped_first_call() {
    let fixture = Fixture::new(None).await;
    let hub = fixture.hub().await;
    hub.run(async {
        for _ in 0..20 {
            let first = hub.call("counter", "count", json!({}));
            let _ = tokio::time::timeout(Duration::ZERO, first.into_future()).await;
        }
        let before: u64 =
            hub.call("counter", "count", json!({})).await.unwrap().text().parse().unwrap();
        // Longer than the maintenance interval.
        tokio::time::sleep(Duration::from_secs(6)).await;
        let after: u64 =
            hub.call("counter", "count", json!({})).await.unwrap().text().parse().unwrap();
        assert_eq!(after, before + 1);
    })
    .await;
    assert!(fixture.marker.processes().is_empty());
}

/// Body of the other process, which the tests below start. Does nothing when the test runner starts it.
#[tokio::test]
async fn holder_process() {
    let Ok(url) = std::env::var("HOLDER_SERVER") else { return };
    let folder = std::path::PathBuf::from(std::env::var_os("HOLDER_FOLDER").unwrap());
    let marker = ProcessMarker::with_value(&std::env::var("HOLDER_MARKER").unwrap());
    let builder = Hub::builder().server("counter", marker.server());
    let hub = hub_in(builder, &folder, &std::env::var("HOLDER_STORE").unwrap(), &url).await;
    let session = hub.session("chat").await.unwrap();
    // Each input line has a server and a number of concurrent calls.
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (server, calls) = line.split_once(' ').unwrap();
        let calls = (0..calls.parse().unwrap()).map(|_: u32| count_on(&session, server));
        for counted in join_all(calls).await {
            println!(
                "\nRESULT {}",
                counted.map_or_else(|error| describe(&error), |it| it.to_string())
            );
        }
    }
}

fn describe(error: &Error) -> String {
    let lost = error.state_lost().map(|lost| format!("lost {}", lost.generation()));
    lost.unwrap_or_else(|| error.to_string())
}

/// Another process with a hub. It is killed on drop.
struct OtherProcess {
    process: std::process::Child,
    output: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl OtherProcess {
    fn start(fixture: &Fixture) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "stores::holder_process", "--nocapture", "--test-threads=1"])
            .env("HOLDER_MARKER", fixture.marker.value())
            .env("HOLDER_SERVER", fixture.server.url())
            .env("HOLDER_STORE", &fixture.store)
            .env("HOLDER_FOLDER", fixture.folder.path());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, output }
    }

    fn request_call(&mut self) {
        self.request_calls("remote", 1);
    }

    fn request_calls(&mut self, server: &str, calls: usize) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{server} {calls}").unwrap();
    }

    fn read_result(&mut self) -> String {
        let mut lines = self.output.by_ref().map_while(Result::ok);
        lines.find_map(|line| line.strip_prefix("RESULT ").map(str::to_owned)).unwrap()
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

/// §7, R118, E07: its session on an HTTP server continues in another process.
#[tokio::test]
async fn lease_of_a_killed_process_expires() {
    let fixture = Fixture::new(None).await;
    let mut other = OtherProcess::start(&fixture);
    other.request_call();
    assert_eq!(other.read_result(), "1");
    other.signal("-KILL");
    let greeted = fixture.server.counted("initialize").await;
    let hub = fixture.hub().await;
    let session = hub.session("chat").await.unwrap();
    assert_eq!(count_on(&session, "remote").await.unwrap(), 2);
    assert_eq!(
        fixture.server.counted("initialize").await,
        greeted,
        "there was no second handshake"
    );
    hub.close(TEST_TIMEOUT).await;
}

/// §7: a process that was suspended for longer than its lease sends nothing on a session that another process holds;
/// when that one releases the session, it continues.
#[tokio::test]
async fn process_without_lease_sends_nothing() {
    let fixture = Fixture::new(None).await;
    let mut other = OtherProcess::start(&fixture);
    other.request_call();
    assert_eq!(other.read_result(), "1");
    other.signal("-STOP");
    let hub = fixture.hub().await;
    let session = hub.session("chat").await.unwrap();
    assert_eq!(count_on(&session, "remote").await.unwrap(), 2);
    other.request_call();
    other.signal("-CONT");
    // Time for the other process to send a call, which it must not.
    for number in 3..23 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(count_on(&session, "remote").await.unwrap(), number);
    }
    hub.close(TEST_TIMEOUT).await;
    assert_eq!(other.read_result(), "23");
}

/// §7, invariant 3: a process that lost a session to another one does not go on with its old child process when the
/// session comes back. All calls that wait for the lease get the loss.
#[tokio::test]
async fn session_that_comes_back_after_a_takeover_reports_the_loss() {
    let fixture = Fixture::new(None).await;
    let mut other = OtherProcess::start(&fixture);
    other.request_calls("counter", 1);
    assert_eq!(other.read_result(), "1");
    other.signal("-STOP");
    let hub = fixture.hub().await;
    let session = hub.session("chat").await.unwrap();
    assert_eq!(describe(&count_on(&session, "counter").await.unwrap_err()), "lost 1");
    for number in 1..=3 {
        assert_eq!(count_on(&session, "counter").await.unwrap(), number);
    }
    hub.close(TEST_TIMEOUT).await;
    other.request_calls("counter", CALLS);
    other.signal("-CONT");
    for _ in 0..CALLS {
        assert_eq!(other.read_result(), "lost 2");
    }
    other.request_calls("counter", 1);
    assert_eq!(other.read_result(), "1");
    assert_eq!(fixture.marker.processes_of("stayput-testserver"), 1, "the old process has ended");
}

/// A program that returns from `main` without `close` does not make the next one wait for its lease.
#[tokio::test]
async fn hub_that_is_dropped_in_a_runtime_releases_its_sessions() {
    let fixture = Fixture::new(None).await;
    let hub = async |lease| {
        let builder = Hub::builder().server("remote", Http::new(fixture.server.url()));
        let folders = fixture.folder.path().join("folders");
        let builder = builder.store(&fixture.store).lease(lease).release_after(Duration::MAX);
        builder.folders(folders).open().await.unwrap()
    };
    // The sessions of a hub that releases nothing would be held for longer than the test may take.
    let first = hub(TEST_TIMEOUT * 10).await;
    let session = first.session("chat").await.unwrap();
    assert_eq!(count_on(&session, "remote").await.unwrap(), 1);
    drop((session, first));
    let second = hub(LEASE).await;
    let opening = tokio::time::timeout(TEST_TIMEOUT, second.session("chat")).await;
    assert_eq!(count_on(&opening.unwrap().unwrap(), "remote").await.unwrap(), 2);
}

/// The state of a child process stays where it is, so that there is nothing to wait for.
#[tokio::test]
async fn session_with_a_process_of_another_hub_is_an_error_at_once() {
    let fixture = Fixture::new(None).await;
    let first = fixture.hub().await;
    let session = first.session("chat").await.unwrap();
    assert_eq!(count_on(&session, "counter").await.unwrap(), 1);
    let builder = Hub::builder().server("counter", fixture.marker.server());
    let folder = fixture.folder.path();
    let second = hub_in(builder, folder, &fixture.store, fixture.server.url()).await;
    let start = std::time::Instant::now();
    for _ in 0..20 {
        let held = second.session("chat").await.unwrap_err();
        assert!(matches!(held, Error::SessionHeldElsewhere), "{held}");
        assert!(held.to_string().contains("gateway"), "{held}");
    }
    assert!(start.elapsed() < LEASE, "each of twenty waited");
    assert_eq!(count_on(&session, "counter").await.unwrap(), 2, "it was not given up");
}

/// Two processes share a session on an HTTP server: the idle one gives it up, and the next call claims it.
#[tokio::test]
async fn idle_session_on_an_http_server_moves_to_its_next_caller() {
    let fixture = Fixture::new(None).await;
    let hub = async || {
        let builder = Hub::builder().release_after(Duration::from_millis(50));
        hub_in(builder, fixture.folder.path(), &fixture.store, fixture.server.url()).await
    };
    let hubs = [hub().await, hub().await, hub().await];
    let first = hubs[0].session("chat").await.unwrap();
    assert_eq!(count_on(&first, "remote").await.unwrap(), 1);
    let greeted = fixture.server.counted("initialize").await;
    let mut expected = 1;
    for turn in 0..12 {
        let session = hubs[turn % 3].session("chat").await.unwrap();
        assert_eq!(session.id(), first.id());
        expected += 1;
        assert_eq!(count_on(&session, "remote").await.unwrap(), expected);
    }
    // A handle that its hub gave up claims the session again.
    assert_eq!(count_on(&first, "remote").await.unwrap(), expected + 1);
    assert_eq!(
        fixture.server.counted("initialize").await,
        greeted,
        "there was no second handshake"
    );
    first.end().await.unwrap();
    assert!(matches!(hubs[1].find("chat").await, Err(Error::UnknownSession)));
}

/// Forty concurrent callers in three hubs use one session one hub after the other, and lose nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_in_several_hubs_share_a_session_while_it_moves() {
    let fixture = Fixture::new(None).await;
    let hub = async || {
        let builder = Hub::builder().release_after(Duration::from_millis(20));
        hub_in(builder, fixture.folder.path(), &fixture.store, fixture.server.url()).await
    };
    let hubs = [hub().await, hub().await, hub().await];
    let calls = (0..CALLS).map(|turn| {
        let hub = hubs[turn % 3].clone();
        async move { count_on(&hub.session("chat").await?, "remote").await }
    });
    let mut counted: Vec<u64> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    counted.sort_unstable();
    assert_eq!(counted, (1..=CALLS as u64).collect::<Vec<_>>());
}

/// `Duration::MAX` keeps sessions, and the waiting time can be set.
#[tokio::test]
async fn session_that_is_never_given_up_is_an_error_after_the_timeout() {
    let fixture = Fixture::new(None).await;
    let (folder, url) = (fixture.folder.path(), fixture.server.url());
    let first =
        hub_in(Hub::builder().release_after(Duration::MAX), folder, &fixture.store, url).await;
    let session = first.session("chat").await.unwrap();
    assert_eq!(count_on(&session, "remote").await.unwrap(), 1);
    let builder = Hub::builder().takeover_timeout(Duration::from_millis(1_500));
    let second = hub_in(builder, folder, &fixture.store, url).await;
    let held = second.session("chat").await.unwrap_err();
    assert!(matches!(held, Error::SessionHeldElsewhere), "{held}");
}

/// The check comes before the store is created.
#[tokio::test]
async fn store_without_folders_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.db");
    let builder = || Hub::builder().store(&format!("sqlite:{}", file.display()));
    let error = builder().open().await.unwrap_err();
    assert!(error.to_string().contains("folders"), "{error}");
    let error = builder().folders(folder.path()).build().unwrap_err();
    assert!(error.to_string().contains("open().await"), "{error}");
    assert!(!file.exists());
}

/// §7: a session whose store is emptied goes on with its links and its generation, and is in the store again.
#[tokio::test]
async fn session_goes_on_after_the_store_forgot_it() {
    let redis = stayput_testkit::redis::Redis::start();
    let keys = || {
        let output = redis.cli().args(["--raw", "dbsize"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap()
    };
    let fixture = Fixture::new(Some(redis.url())).await;
    let hub = fixture.hub().await;
    let session = hub.session("chat").await.unwrap();
    let mut counted = 1;
    let count_both = async |expected: u64| {
        for server in ["remote", "counter"] {
            assert_eq!(count_on(&session, server).await.unwrap(), expected, "{server}");
        }
    };
    count_both(counted).await;
    let before = keys();
    assert!(redis.cli().arg("flushall").output().unwrap().status.success());
    // The lease, the session and its key are stored again; a call comes at every moment of that.
    let start = std::time::Instant::now();
    while keys() < before.min(5) {
        counted += 1;
        count_both(counted).await;
        assert!(start.elapsed() < TEST_TIMEOUT, "it is not stored again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    counted += 1;
    count_both(counted).await;
    assert_eq!(fixture.marker.processes_of("stayput-testserver"), 1);
    let id = session.id();
    hub.close(TEST_TIMEOUT).await;
    let hub = fixture.hub().await;
    let session = hub.session("chat").await.unwrap();
    assert_eq!(session.id(), id);
    assert_eq!(count_on(&session, "remote").await.unwrap(), counted + 1);
    hub.close(TEST_TIMEOUT).await;
    assert!(fixture.marker.processes().is_empty());
}

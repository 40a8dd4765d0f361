//! Sessions on links to real child processes.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{sync::Arc, time::Duration};

use stayput_core::{
    Agent, Clock, EndReason, Expiry, Generation, Holder, Key, ManualClock, MemoryStore,
    OpenOptions, Owner, Session, Sessions, Settings, Timestamp,
};
use stayput_engine::Engine;
use stayput_process::Processes;
use stayput_testkit::mcp::TestServer;
use stayput_upstream::{
    CallOptions, ClientInfo, EraChoice, Http, Isolation, LinkOwner, LinkSettings, Links, Options,
    PooledLink, SealKey, Server, SessionDirs, Stdio, Timeouts,
};
use tokio::runtime::Handle;

/// Engine with its own sessions and links on a store that several can share.
struct Process {
    engine: Engine,
}

impl Process {
    async fn start(store: &Arc<MemoryStore>, clock: &Arc<ManualClock>, seal: &SealKey) -> Self {
        let shared: Arc<dyn Clock> = clock.clone();
        let holder = Holder::unreachable();
        let sessions = Sessions::start(store.clone(), shared, holder, Settings::default());
        let processes = Processes::local(Handle::current());
        let settings = LinkSettings::new(processes, SessionDirs::temporary().unwrap());
        let links = Links::new(settings, Handle::current());
        let sessions = Arc::new(sessions.await.unwrap());
        Self { engine: Engine::new(sessions, links, seal.clone(), "a process") }
    }

    async fn open(&self, name: &str) -> Arc<Session> {
        let key = Key::named(name).unwrap();
        let options = OpenOptions::with_key(Owner::local(), Agent::none(), key);
        let opened = self.engine.sessions().open(&options).await.unwrap();
        opened.session.session().clone()
    }

    async fn link(&self, session: &Arc<Session>, server: &Server, branch: u64) -> PooledLink {
        let owner = LinkOwner::new(Owner::local(), session.id()).branch(branch);
        let client = ClientInfo::named("test", "1");
        self.engine.open_link((session, &owner), server, client).await.unwrap()
    }

    async fn close(self) {
        self.engine.links().close(Duration::from_secs(20)).await;
        let _ = self.engine.sessions().close().await;
    }
}

fn counter(options: Options) -> Server {
    let program = stayput_testkit::program("stayput-testserver");
    let stdio = Stdio::new(program.to_str().unwrap()).args(["stdio"]);
    Server::with("counter", stdio, options).unwrap()
}

async fn count(link: &PooledLink) -> String {
    let call = link.call("tools/call", Some(r#"{"name":"count"}"#), CallOptions::default());
    call.await.unwrap().answer().await.unwrap().result().unwrap().to_owned()
}

fn setup() -> (Arc<MemoryStore>, Arc<ManualClock>, SealKey) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000)));
    (Arc::new(MemoryStore::new(clock.clone())), clock, SealKey::generate().unwrap())
}

/// A child process does not survive its parent, so the next process starts a new one under the next generation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_process_counts_the_state_of_a_child_as_lost() {
    let (store, clock, seal) = setup();
    let server = counter(Options::default());
    let first = Process::start(&store, &clock, &seal).await;
    let session = first.open("chat").await;
    let link = first.link(&session, &server, 0).await;
    assert!(count(&link).await.contains("\"1\""));
    assert_eq!(link.generation(), Generation(0));
    drop((link, session));
    first.close().await;

    let second = Process::start(&store, &clock, &seal).await;
    let session = second.open("chat").await;
    let link = second.link(&session, &server, 0).await;
    assert_eq!(link.generation(), Generation(1));
    assert_eq!(session.unacknowledged_loss_on("counter"), Some(Generation(1)));
    let next = stayput_engine::NextState::own(Generation(1));
    second.engine.acknowledge_loss(&session, "counter", &next).await.unwrap();
    assert_eq!(session.unacknowledged_loss_on("counter"), None);
    drop(link);
    second.close().await;
}

/// A branch has its own process, and leaves no trace in the record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn branch_is_not_resumed() {
    let (store, clock, seal) = setup();
    let process = Process::start(&store, &clock, &seal).await;
    let session = process.open("chat").await;
    let link = process.link(&session, &counter(Options::default()), 7).await;
    assert!(count(&link).await.contains("\"1\""));
    assert!(session.record().attachments.is_empty());
    drop(link);
    process.close().await;
}

/// Each session counts the losses of a shared link from its first use on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_on_a_shared_link_count_their_own_losses() {
    let (store, clock, seal) = setup();
    let process = Process::start(&store, &clock, &seal).await;
    let engine = &process.engine;
    let isolation = Some(Isolation::Shared);
    // In the modern era the server would keep no state.
    let server = counter(Options { era: EraChoice::Legacy, isolation, ..Options::default() });
    let (ann, bob) = (process.open("ann").await, process.open("bob").await);
    let link = process.link(&ann, &server, 0).await;
    let seen = engine.note_shared_state(&ann, "counter", &link).await.unwrap();
    assert_eq!(seen, Some(Generation(0)));
    let next = engine.state_after_loss(&ann, "counter", &link);
    assert_eq!(next.generation, Generation(1), "Ann knew the state");
    engine.acknowledge_loss(&ann, "counter", &next).await.unwrap();
    assert_eq!(ann.unacknowledged_loss_on("counter"), None);
    assert!(bob.record().attachments.is_empty(), "Bob has lost nothing");
    drop(link);
    process.close().await;
}

/// A sweep reports an expired session once, with its reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweep_reports_expired_sessions() {
    let (store, clock, seal) = setup();
    let process = Process::start(&store, &clock, &seal).await;
    let session = process.open("chat").await;
    let (id, idle) = (session.id(), Expiry::default().idle.unwrap());
    drop(session);
    assert!(process.engine.sweep().await.is_empty());
    clock.advance(idle + Duration::from_secs(1));
    process.engine.sessions().renew().await.unwrap();
    let swept = process.engine.sweep().await;
    let reasons: Vec<_> = swept.iter().map(|it| (it.record.id, it.unreported_reason())).collect();
    assert_eq!(reasons, [(id, Some(EndReason::Idle))]);
    assert!(process.engine.sweep().await.is_empty());
    process.close().await;
}

/// A server that does not answer DELETE does not keep the client that ends its session waiting. The end is stored before
/// that, so that a process that is killed meanwhile leaves a closed session.
#[tokio::test]
async fn end_does_not_wait_for_a_silent_server() {
    let (store, clock, seal) = setup();
    let process = Process::start(&store, &clock, &seal).await;
    let remote = TestServer::http(&["--era", "legacy"]).await;
    let timeouts = Timeouts { close: Duration::from_secs(3_600), ..Timeouts::default() };
    let options = Options { era: EraChoice::Legacy, timeouts, ..Options::default() };
    let server = Server::with("counter", Http::new(remote.url()), options).unwrap();
    let session = process.open("chat").await;
    count(&process.link(&session, &server, 0).await).await;
    let deletes = remote.counted("deletes").await;
    remote.script(&serde_json::json!([{ "on": "DELETE", "do": "hang" }])).await;
    let ended = process.engine.end_session(&session, |_| Some(server.clone()));
    tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap().unwrap();
    assert_eq!(remote.counted("deletes").await, deletes + 1);
    let record = process.engine.sessions().load_record(session.id()).await.unwrap().unwrap();
    assert_eq!(record.deadline(), Some(record.last_used), "the store does not know of the end");
    let mut record = record;
    record.end(EndReason::Idle, clock.now());
    assert_eq!(record.ended.unwrap().reason, EndReason::Closed);
}

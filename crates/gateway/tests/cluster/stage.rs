//! Replicas whose database and whose network can fail.

use std::time::Duration;

use serde_json::{Value, json};
use stayput_testkit::{Relay, mcp::TestServer, postgres::Postgres, processes, redis::Redis};
use tokio::time::timeout;

use crate::{
    replicas::{free_port, settings},
    support::{Gateway, stdio},
};

/// Lease of the replicas.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// Time after which no process of a killed gateway may run (invariant 5).
const ORPHAN_LIMIT: Duration = Duration::from_secs(2);

/// Kind of database under the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Postgres,
    Redis,
}

/// Database of its own, which can be killed.
enum Server {
    Postgres(Postgres),
    Redis(Redis),
}

impl Server {
    fn start(engine: Engine) -> Self {
        match engine {
            Engine::Postgres => Self::Postgres(Postgres::start()),
            Engine::Redis => Self::Redis(Redis::start()),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Postgres(it) => it.url(),
            Self::Redis(it) => it.url(),
        }
    }

    fn kill(&mut self) {
        match self {
            Self::Postgres(it) => it.kill(),
            Self::Redis(it) => it.kill(),
        }
    }

    fn start_again(&mut self) {
        match self {
            Self::Postgres(it) => it.start_again(),
            Self::Redis(it) => it.start_again(),
        }
    }
}

/// Runs work that blocks its thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Returns the port in a URL of a database.
fn port(url: &str) -> u16 {
    let end = url.rsplit(':').next().unwrap_or_default();
    end.split('/').next().unwrap_or_default().parse().unwrap()
}

/// One replica, which reaches the database through a relay, and which the others reach through another one.
pub(crate) struct Replica {
    pub(crate) gateway: Gateway,
    pub(crate) store: Relay,
    pub(crate) internal: Relay,
}

impl Replica {
    async fn start(servers: &Value, database: &str) -> Self {
        let (to, listen) = (port(database), free_port());
        let (store, internal) = (Relay::to(to).await, Relay::to(listen).await);
        let url = database.replace(&format!(":{to}"), &format!(":{}", store.port()));
        let mut settings = settings(&url);
        settings["lease"] = json!(format!("{}s", LEASE.as_secs()));
        settings["cluster"]["listen"] = json!(format!("127.0.0.1:{listen}"));
        settings["cluster"]["advertise"] = json!(internal.url("").trim_end_matches('/'));
        let mut gateway = Gateway::with(servers.clone(), settings).await;
        // Its clients do not know of its restarts.
        assert!(gateway.stop().success());
        gateway.restart_in_place().await;
        Self { gateway, store, internal }
    }

    /// Kills the gateway with SIGKILL, and checks that none of its processes survives.
    pub(crate) async fn kill(&mut self, trial: &str) {
        let mut left = processes::descendants(self.gateway.pid());
        self.gateway.kill();
        let ended = async {
            loop {
                left.retain(|pid| processes::is_alive(*pid));
                if left.is_empty() {
                    return;
                }
                processes::wait_for_exit(&left).await;
            }
        };
        let ended = timeout(ORPHAN_LIMIT, ended).await;
        assert!(ended.is_ok(), "{trial}: a process was left behind");
    }
}

/// Three replicas on one database, with a server on stdio, `local`, and one over HTTP, `web`.
pub(crate) struct Stage {
    pub(crate) replicas: Vec<Replica>,
    database: Option<Server>,
    _web: TestServer,
    mark: String,
}

impl Stage {
    pub(crate) async fn start(engine: Engine, mark: &str) -> Self {
        let database = blocking(move || Server::start(engine)).await;
        let web = TestServer::http(&["--era", "legacy"]).await;
        let servers = json!({ "local": stdio(mark, &[]), "web": { "url": web.url() } });
        let mut replicas = Vec::new();
        for _ in 0..3 {
            replicas.push(Replica::start(&servers, &database.url()).await);
        }
        Self { replicas, database: Some(database), _web: web, mark: mark.to_owned() }
    }

    /// Returns the URLs of a server at all replicas but one.
    pub(crate) fn urls(&self, server: &str, without: Option<usize>) -> Vec<String> {
        let all = self.replicas.iter().enumerate();
        all.filter(|(number, _)| Some(*number) != without)
            .map(|(_, it)| it.gateway.at(server))
            .collect()
    }

    /// Kills the database, and starts it again after a pause.
    pub(crate) async fn restart_database(&mut self, pause: Duration) {
        let mut database = self.database.take().unwrap();
        let killed = blocking(move || {
            database.kill();
            database
        });
        let mut database = killed.await;
        tokio::time::sleep(pause).await;
        let started = blocking(move || {
            database.start_again();
            database
        });
        self.database = Some(started.await);
    }

    /// Returns the test servers on stdio that run.
    pub(crate) fn servers(&self) -> Vec<u32> {
        let is_server = |pid: &u32| {
            let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
            exe.is_ok_and(|exe| exe.ends_with("stayput-testserver"))
        };
        processes::with_token(&self.mark).into_iter().filter(is_server).collect()
    }

    /// Returns the end of each replica's log.
    pub(crate) fn logs(&self) -> String {
        let end = |log: String| {
            let lines: Vec<_> = log.lines().collect();
            lines[lines.len().saturating_sub(40)..].join("\n")
        };
        let all = self.replicas.iter().map(|it| end(it.gateway.log()));
        all.collect::<Vec<_>>().join("\n---\n")
    }
}

//! Uses of the database by calls: none on a session that is held, or whose holder is known.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::json;
use stayput_testkit::{mcp::TestServer, postgres::Postgres, redis::Redis};

use crate::{
    modern::Modern,
    replicas::Replicas,
    support::{Client, gone, mark, stdio, until},
};

/// Calls of one client at one replica.
const CALLS: usize = 100;

/// Part of the keys, or a parameter, of everything that concerns the registry of the gateways.
const REGISTRY: &str = "00000000-0000-7000-8000-000000000001";

/// Scripts that write the times of use of many sessions, in the sources of the Redis store.
const UPKEEP_SCRIPTS: [&str; 2] = [
    concat!(
        include_str!("../../../stores/src/redis/scripts/fence.lua"),
        include_str!("../../../stores/src/redis/scripts/touch.lua")
    ),
    concat!(
        include_str!("../../../stores/src/redis/scripts/fence.lua"),
        include_str!("../../../stores/src/redis/scripts/touch_connection.lua")
    ),
];

/// Purpose of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    /// Renewal of a lease, or a look whether one is alive.
    Lease,
    /// Row of a gateway.
    Registry,
    /// Times of use and expired sessions, of all sessions at once and every few seconds.
    Upkeep,
    /// Anything else: it is there because of a request.
    Request,
}

/// Database that records all commands.
pub(crate) enum Recorder {
    Postgres { server: Postgres, log: PathBuf },
    Redis { server: Redis, monitor: Child, folder: tempfile::TempDir, upkeep: Vec<String> },
}

impl Recorder {
    pub(crate) fn postgres() -> Self {
        let log = std::cell::RefCell::new(PathBuf::new());
        let server = Postgres::with(|data| {
            *log.borrow_mut() = data.join("log/commands");
            let settings = [
                "logging_collector=on",
                "log_directory=log",
                "log_filename=commands",
                "log_statement=all",
                "log_line_prefix=",
            ];
            settings.iter().flat_map(|it| ["-c".to_owned(), (*it).to_owned()]).collect()
        });
        Self::Postgres { server, log: log.into_inner() }
    }

    pub(crate) fn redis() -> Self {
        let (server, folder) = (Redis::start(), tempfile::TempDir::new().unwrap());
        let file = fs::File::create(folder.path().join("commands")).unwrap();
        let mut monitor = server.cli();
        let monitor = monitor.arg("monitor").stdin(Stdio::null()).stdout(file).spawn().unwrap();
        let hash = |script: &&str| {
            let loaded = server.cli().args(["script", "load", script]).output().unwrap();
            String::from_utf8(loaded.stdout).unwrap().trim().to_owned()
        };
        let upkeep = UPKEEP_SCRIPTS.iter().map(hash).collect();
        Self::Redis { server, monitor, folder, upkeep }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres { server, .. } => server.url(),
            Self::Redis { server, .. } => server.url(),
        }
    }

    pub(crate) fn log(&self) -> String {
        let file = match self {
            Self::Postgres { log, .. } => log.clone(),
            Self::Redis { folder, .. } => folder.path().join("commands"),
        };
        String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
    }

    /// Returns the end of the log, after everything that was asked so far.
    pub(crate) async fn position(&self, number: usize) -> usize {
        let text = format!("position-{number}-of-the-test");
        // The monitor may not be connected yet.
        until("mark in the log", || {
            match self {
                Self::Postgres { server, .. } => server.execute(&format!("select '{text}'")),
                Self::Redis { server, .. } => {
                    let mut echo: Command = server.cli();
                    assert!(echo.args(["echo", &text]).output().unwrap().status.success());
                }
            }
            self.log().contains(&text)
        })
        .await;
        self.log().rfind(&text).unwrap() + text.len()
    }

    /// Returns the commands in a part of the log.
    fn commands(&self, log: &str) -> Vec<String> {
        let is_own = |command: &&str| !command.contains("-of-the-test");
        match self {
            Self::Postgres { .. } => {
                let all = log.split("LOG:  ").skip(1).filter(is_own);
                let is_command =
                    |it: &&str| it.starts_with("execute") || it.starts_with("statement");
                all.filter(is_command).map(str::to_owned).collect()
            }
            Self::Redis { .. } => {
                let all = log.lines().skip(1).filter(is_own);
                all.filter(|line| !line.contains(" lua] ")).map(str::to_owned).collect()
            }
        }
    }

    /// Returns the commands in a part of the log that concern the events of clients.
    pub(crate) fn uses_of_events(&self, log: &str) -> Vec<String> {
        let table = match self {
            Self::Postgres { .. } => "stayput_topic",
            Self::Redis { .. } => "}:e\"",
        };
        let mut commands = self.commands(log);
        commands.retain(|command| command.contains(table));
        commands
    }

    fn purpose(&self, command: &str) -> Purpose {
        let has = |parts: &[&str]| parts.iter().any(|part| command.contains(part));
        if has(&[REGISTRY]) {
            return Purpose::Registry;
        }
        let (lease, upkeep) = match self {
            Self::Postgres { .. } => (
                has(&["update stayput_lease", "stayput_lease_address"]),
                has(&["stayput_touch", "s.deadline <= $1", "s.ended_at < $1"]),
            ),
            Self::Redis { upkeep, .. } => (
                has(&[":{leases}:"]),
                has(&[":due\"", ":ended\""]) || upkeep.iter().any(|hash| command.contains(hash)),
            ),
        };
        match (lease, upkeep) {
            (true, _) => Purpose::Lease,
            (_, true) => Purpose::Upkeep,
            _ => Purpose::Request,
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Self::Redis { monitor, .. } = self {
            let _ = monitor.kill();
            let _ = monitor.wait();
        }
    }
}

/// Client of either era.
enum Caller {
    Legacy(Client),
    Modern(&'static str),
}

impl Caller {
    async fn call(&self, replicas: &Replicas, replica: usize) {
        let gateway = &replicas.all[replica];
        match self {
            Self::Legacy(client) => drop(client.text(gateway, "count").await),
            Self::Modern(server) => {
                let client = Modern::of(gateway, server).named(&format!("chat-{server}"));
                drop(client.text("count").await);
            }
        }
    }
}

/// Whether a command looks for the session of a connection, by which Redis finds its times of use, too.
fn is_lookup(command: &str) -> bool {
    command.contains("\"GET\" \"stayput:n:")
}

/// Returns how often each purpose appears in a part of the log, after printing what requests have asked.
#[allow(clippy::print_stdout, reason = "it is shown if the test fails")]
fn count(recorder: &Recorder, log: &str) -> BTreeMap<Purpose, usize> {
    let mut counts = BTreeMap::from([(Purpose::Request, 0)]);
    // Purpose of the next command of each client of the database.
    let mut next = BTreeMap::<String, Purpose>::new();
    for command in recorder.commands(log).into_iter().rev() {
        let client = command.split(']').next().and_then(|it| it.rsplit(' ').next());
        let client = client.unwrap_or_default().to_owned();
        let mut purpose = recorder.purpose(&command);
        if is_lookup(&command) && next.get(&client) == Some(&Purpose::Upkeep) {
            purpose = Purpose::Upkeep;
        }
        match purpose {
            Purpose::Request => println!("{command}"),
            Purpose::Upkeep => {}
            Purpose::Lease | Purpose::Registry => {
                *counts.entry(purpose).or_default() += 1;
                continue;
            }
        }
        next.insert(client, purpose);
        *counts.entry(purpose).or_default() += 1;
    }
    counts
}

/// §7: a call on a held session touches no database, and a forwarded call neither once the holder is known.
async fn check_calls(recorder: Recorder, name: &str) {
    let (mark, web) = (mark(name), TestServer::http(&["--era", "legacy"]).await);
    let servers = json!({ "local": stdio(&mark, &[]), "web": { "url": web.url() } });
    let replicas = Replicas::start(&servers, &recorder.url()).await;
    let start = recorder.position(0).await;
    let callers = [
        Caller::Legacy(replicas.all[0].client("local").await),
        Caller::Legacy(replicas.all[0].client("web").await),
        Caller::Modern("local"),
        Caller::Modern("web"),
    ];
    for caller in &callers {
        for replica in 0..3 {
            caller.call(&replicas, replica).await;
        }
    }
    let begin = recorder.position(1).await;
    for caller in &callers {
        // The last one holds nothing; each call at it is forwarded.
        for replica in [0, 2] {
            for _ in 0..CALLS {
                caller.call(&replicas, replica).await;
            }
        }
    }
    let end = recorder.position(2).await;
    let log = recorder.log();
    let (before, during) =
        (count(&recorder, &log[start..begin]), count(&recorder, &log[begin..end]));
    // Opening sessions and finding their holders does ask.
    assert!(before[&Purpose::Request] >= 2 * callers.len(), "{before:?}");
    assert_eq!(during[&Purpose::Request], 0, "{during:?}");
    drop((replicas, recorder));
    gone(&mark).await;
}

#[tokio::test]
async fn call_on_a_known_session_asks_no_postgres() {
    let recorder = tokio::task::spawn_blocking(Recorder::postgres).await.unwrap();
    check_calls(recorder, "asks-postgres").await;
}

#[tokio::test]
async fn call_on_a_known_session_asks_no_redis() {
    let recorder = tokio::task::spawn_blocking(Recorder::redis).await.unwrap();
    check_calls(recorder, "asks-redis").await;
}

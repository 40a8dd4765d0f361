//! Processes that several sessions use: one replica holds each of them.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{FutureExt as _, future::join_all};
use serde_json::{Value, json};
use stayput_testkit::{processes, program};
use tempfile::NamedTempFile;
use tokio::time::Instant;

use crate::{
    modern::Modern,
    replicas::{Database, Replicas, settings},
    support::{Client, Gateway, LONG, gone, mark, stdio, until},
};

/// Server with this isolation, which records its starts.
struct SharedServer {
    mark: String,
    isolation: &'static str,
    starts: NamedTempFile,
}

impl SharedServer {
    fn new(name: &str, isolation: &'static str) -> Self {
        Self { mark: mark(name), isolation, starts: NamedTempFile::new().unwrap() }
    }

    fn servers(&self) -> Value {
        let args = json!([
            "stdio",
            "--era",
            "legacy",
            "--mark",
            self.mark,
            "--starts",
            self.starts.path()
        ]);
        let options = json!({ "isolation": self.isolation });
        json!({ "local": {
            "command": program("stayput-testserver"), "args": args, "stayput": options
        } })
    }

    /// Number of processes that were started.
    fn starts(&self) -> usize {
        std::fs::read_to_string(self.starts.path()).unwrap().lines().count()
    }

    /// Returns the number of the replica that has the process.
    fn holder(&self, replicas: &Replicas) -> usize {
        let [process] = *processes::with_token(&self.mark) else { panic!("one process") };
        let is_holder =
            |replica: &Gateway| processes::descendants(replica.pid()).contains(&process);
        replicas.all.iter().position(is_holder).unwrap()
    }
}

/// Returns the text of a successful result.
fn count(result: &Value) -> usize {
    let text = result["content"][0]["text"].as_str();
    text.and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{result}"))
}

fn is_told_of_the_death(result: &Value) -> bool {
    result["_meta"]["dev.stayput/state"]["state"] == "lost"
        && result.to_string().contains("holder died")
}

async fn call(client: &Client, gateway: &Gateway) -> Value {
    client.call(gateway, "count", json!({})).await["result"].clone()
}

/// Invariant 4: fifty calls at once over all replicas start one process, which has one state. After the death of its
/// holder each client is told once, and one new process starts.
async fn check_shared_process(database: &Database, name: &str) {
    let server = SharedServer::new(name, "shared");
    let mut replicas = Replicas::start(&server.servers(), database.url()).await;
    let opened = (0..10).map(|turn| replicas.all[turn % 3].client("local"));
    let clients = join_all(opened).await;
    let calls = clients.iter().map(|client| call(client, replicas.next()));
    let modern = (0..40).map(|turn| {
        let client = Modern::of(&replicas.all[turn % 3], "local");
        async move { client.call("count", json!({})).await }
    });
    let (one, two) = tokio::join!(join_all(calls), join_all(modern));
    let mut counts: Vec<_> = one.iter().chain(&two).map(count).collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=50).collect::<Vec<_>>(), "{}", replicas.logs());
    let all = replicas.next().client("").await;
    for expected in [51, 52, 53] {
        let result = all.call(replicas.next(), "local__count", json!({})).await;
        assert_eq!(count(&result["result"]), expected, "{}", replicas.logs());
    }
    assert_eq!(server.starts(), 1, "{}", replicas.logs());
    replicas.all.remove(server.holder(&replicas)).kill();
    let mut answered = 0;
    for client in &clients {
        let told = call(client, replicas.next()).await;
        assert!(is_told_of_the_death(&told), "{told} {}", replicas.logs());
        answered += 1;
        assert_eq!(count(&call(client, replicas.next()).await), answered, "{}", replicas.logs());
    }
    let told = all.call(replicas.next(), "local__count", json!({})).await;
    assert!(is_told_of_the_death(&told["result"]), "{told}");
    let modern = || Modern::of(replicas.next(), "local");
    assert!(is_told_of_the_death(&modern().call("count", json!({})).await));
    for _ in 0..3 {
        answered += 1;
        assert_eq!(count(&modern().call("count", json!({})).await), answered);
    }
    // A client that has not used the lost state is told of nothing.
    let new = replicas.next().client("local").await;
    assert_eq!(count(&call(&new, replicas.next()).await), answered + 1);
    assert_eq!(server.starts(), 2, "{}", replicas.logs());
    drop(replicas);
    gone(&server.mark).await;
}

#[tokio::test]
async fn shared_process_is_held_by_one_replica_on_postgres() {
    check_shared_process(&Database::postgres().await, "shared-postgres").await;
}

#[tokio::test]
async fn shared_process_is_held_by_one_replica_on_redis() {
    check_shared_process(&Database::redis().await, "shared-redis").await;
}

/// Each owner has a process of its own, at one replica; the death of one does not concern the other.
#[tokio::test]
async fn process_of_an_owner_is_held_by_one_replica() {
    let (server, database) = (SharedServer::new("per-owner", "per-owner"), Database::redis().await);
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_stayput"));
    let mut token = |name: &str| -> Value {
        let made = program.args(["token", name, "--json"]).output().unwrap().stdout;
        program = std::process::Command::new(env!("CARGO_BIN_EXE_stayput"));
        serde_json::from_slice(&made).unwrap()
    };
    let tokens: BTreeMap<_, _> = ["ann", "bob"].map(|name| (name, token(name))).into();
    let mut settings = settings(database.url());
    settings["auth"] = json!({ "tokens": {
        "ann": tokens["ann"]["hash"], "bob": tokens["bob"]["hash"]
    } });
    let mut replicas = Replicas::with(&server.servers(), &settings).await;
    let ask = async |replica: &Gateway, owner: &str| {
        let bearer = format!("Bearer {}", tokens[owner]["token"].as_str().unwrap());
        let client = Modern::of(replica, "local").with("authorization", &bearer);
        client.call("count", json!({})).await
    };
    assert_eq!(count(&ask(&replicas.all[0], "ann").await), 1);
    assert_eq!(count(&ask(&replicas.all[1], "bob").await), 1);
    for expected in 2..=6 {
        assert_eq!(count(&ask(replicas.next(), "ann").await), expected, "{}", replicas.logs());
        assert_eq!(count(&ask(replicas.next(), "bob").await), expected, "{}", replicas.logs());
    }
    assert_eq!(server.starts(), 2, "{}", replicas.logs());
    replicas.all.remove(0).kill();
    let told = ask(&replicas.all[1], "ann").await;
    assert!(is_told_of_the_death(&told), "{told} {}", replicas.logs());
    for turn in 0..2 {
        assert_eq!(count(&ask(&replicas.all[turn], "ann").await), turn + 1);
        assert_eq!(count(&ask(&replicas.all[turn], "bob").await), turn + 7);
    }
    assert_eq!(server.starts(), 3, "{}", replicas.logs());
    drop(replicas);
    gone(&server.mark).await;
}

/// A holder that was stopped for longer than its lease ends its process when it finds that another replica has one.
#[tokio::test]
async fn stopped_holder_ends_its_shared_process() {
    let (server, database) =
        (SharedServer::new("shared-stopped", "shared"), Database::redis().await);
    let replicas = Replicas::start(&server.servers(), database.url()).await;
    let client = replicas.all[0].client("local").await;
    assert_eq!(count(&call(&client, &replicas.all[1]).await), 1);
    assert_eq!(server.holder(&replicas), 0);
    replicas.all[0].signal("-STOP");
    let told = call(&client, &replicas.all[1]).await;
    assert!(told.to_string().contains("may or may not have been carried out"), "{told}");
    assert!(is_told_of_the_death(&call(&client, &replicas.all[1]).await), "{}", replicas.logs());
    assert_eq!(count(&call(&client, &replicas.all[2]).await), 1);
    assert_eq!(processes::with_token(&server.mark).len(), 2);
    replicas.all[0].signal("-CONT");
    until("end of the former process", || processes::with_token(&server.mark).len() == 1).await;
    assert_eq!(count(&call(&client, &replicas.all[0]).await), 2, "{}", replicas.logs());
    drop(replicas);
    gone(&server.mark).await;
}

/// A process that several sessions use ends when its gateway drains: calls are forwarded meanwhile, its loss is reported
/// once to each client, with the reason, and one new process starts elsewhere.
#[tokio::test]
async fn shared_process_moves_when_its_holder_stops() {
    let (server, database) = (SharedServer::new("shared-drain", "shared"), Database::redis().await);
    let mut settings = settings(database.url());
    settings["limits"] = json!({ "drain": "1s" });
    // Nothing here depends on the end of a lease.
    settings["lease"] = json!("15s");
    let mut replicas = Replicas::with(&server.servers(), &settings).await;
    let opened = (0..3).map(|turn| replicas.all[turn].client("local"));
    let clients = join_all(opened).await;
    for (number, client) in clients.iter().enumerate() {
        assert_eq!(count(&call(client, replicas.next()).await), number + 1);
    }
    let mut leaving = replicas.all.remove(server.holder(&replicas));
    let stop = async {
        tokio::task::spawn_blocking(move || (leaving.stop().success(), leaving.log())).await
    };
    let mut losses = [0; 3];
    let calls = async {
        while losses.contains(&0) {
            for (client, losses) in clients.iter().zip(&mut losses) {
                let result = call(client, replicas.next()).await;
                if result["_meta"]["dev.stayput/state"]["state"] == "lost" {
                    assert!(result.to_string().contains("the gateway that held it was stopped"));
                    *losses += 1;
                } else {
                    assert_ne!(result["isError"], true, "{result} {}", replicas.logs());
                }
            }
        }
    };
    let (stopped, ()) = tokio::join!(stop, tokio::time::timeout(LONG, calls).map(Result::unwrap));
    let (success, log) = stopped.unwrap();
    assert!(success, "{log}");
    for client in &clients {
        let result = call(client, replicas.next()).await;
        assert!(result["_meta"]["dev.stayput/state"]["state"] != "lost", "{result}");
        count(&result);
    }
    assert_eq!(losses, [1, 1, 1], "{}", replicas.logs());
    assert_eq!(server.starts(), 2, "{}", replicas.logs());
    drop(replicas);
    gone(&server.mark).await;
}

/// A client that only uses a process which another replica holds keeps its session: that does not count as idle.
#[tokio::test]
async fn session_is_in_use_through_a_process_at_another_replica() {
    let (server, database) = (SharedServer::new("shared-use", "shared"), Database::redis().await);
    let mut settings = settings(database.url());
    settings["expiry"] = json!({ "idle": "4s" });
    let mut servers = server.servers();
    servers["own"] = stdio(&server.mark, &[]);
    let replicas = Replicas::with(&servers, &settings).await;
    let (one, two) = (&replicas.all[0], &replicas.all[1]);
    assert_eq!(count(&call(&one.client("local").await, one).await), 1);
    let client = two.client("").await;
    let own = async || client.call(two, "own__count", json!({})).await["result"].clone();
    assert_eq!(count(&own().await), 1);
    // Twice as long as the session may be idle, and long enough for a sweep.
    let end = Instant::now() + Duration::from_secs(12);
    while Instant::now() < end {
        let result = client.call(two, "local__count", json!({})).await;
        count(&result["result"]);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(count(&own().await), 2, "{}", replicas.logs());
    drop(replicas);
    gone(&server.mark).await;
}

//! Processes that several sessions use: one replica holds each of them.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::{Value, json};
use stayput_testkit::{processes, program};
use tempfile::NamedTempFile;

use crate::{
    modern::Modern,
    replicas::{Database, Replicas, settings},
    support::{Client, Gateway, gone, mark, until},
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

//! Sessions of a replica that is gone.

use std::time::Duration;

use serde_json::{Value, json};
use stayput_testkit::mcp::TestServer;
use tokio::time::Instant;

use crate::{
    replicas::{Database, Replicas},
    support::{Client, Gateway, gone, mark, stdio},
};

/// Lease of the replicas, and the time in which a session must answer again.
const RECOVERY: Duration = Duration::from_secs(4 + 1);

/// Calls `count` and returns its result.
async fn result(client: &Client, gateway: &Gateway) -> Value {
    client.call(gateway, "count", json!({})).await["result"].clone()
}

/// §7: sessions on HTTP servers continue without a handshake; the loss of a process is reported once.
async fn check_killed_holder(database: &Database, name: &str) {
    let (mark, web) = (mark(name), TestServer::http(&["--era", "legacy"]).await);
    let servers = json!({ "local": stdio(&mark, &[]), "web": { "url": web.url() } });
    let mut replicas = Replicas::start(&servers, database.url()).await;
    let (local, remote) =
        (replicas.all[0].client("local").await, replicas.all[0].client("web").await);
    for expected in ["1", "2", "3"] {
        assert_eq!(replicas.count(&local).await, expected);
        assert_eq!(replicas.count(&remote).await, expected);
    }
    let handshakes = handshakes(&web).await;
    replicas.all[0].kill();
    let start = Instant::now();
    let (one, two) = (&replicas.all[1], &replicas.all[2]);
    assert_eq!(result(&remote, one).await["content"][0]["text"], "4", "{}", replicas.logs());
    assert!(start.elapsed() < RECOVERY, "{:?}", start.elapsed());
    assert_eq!(result(&remote, two).await["content"][0]["text"], "5");
    assert_eq!(self::handshakes(&web).await, handshakes, "there was a new handshake");
    let told = result(&local, two).await;
    assert_eq!(told["_meta"]["dev.stayput/state"]["state"], "lost", "{told}");
    assert!(told.to_string().contains("holder died"), "{told}");
    assert_eq!(result(&local, one).await["content"][0]["text"], "1", "{}", replicas.logs());
    assert_eq!(result(&local, two).await["content"][0]["text"], "2");
    drop(replicas);
    gone(&mark).await;
}

/// Number of `initialize` requests that the server got.
async fn handshakes(server: &TestServer) -> u64 {
    server.counted("initialize").await
}

#[tokio::test]
async fn sessions_of_a_killed_replica_are_taken_over_on_postgres() {
    check_killed_holder(&Database::postgres().await, "killed-postgres").await;
}

#[tokio::test]
async fn sessions_of_a_killed_replica_are_taken_over_on_redis() {
    check_killed_holder(&Database::redis().await, "killed-redis").await;
}

/// Invariant 2: a call whose holder dies is not repeated, and its client learns that it may have run.
#[tokio::test]
async fn call_of_a_killed_replica_is_not_repeated() {
    let (mark, database) = (mark("cluster-unknown"), Database::redis().await);
    let web = TestServer::http(&["--era", "legacy"]).await;
    let mut replicas =
        Replicas::start(&json!({ "web": { "url": web.url() } }), database.url()).await;
    let client = replicas.all[0].client("web").await;
    assert_eq!(client.text(&replicas.all[0], "count").await, "1");
    let holder = replicas.all.remove(0);
    let slow = client.call(&replicas.all[0], "slow", json!({ "ms": 20_000 }));
    let kill = async {
        let mut holder = holder;
        while calls(&web).await < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::task::spawn_blocking(move || holder.kill()).await.unwrap();
    };
    let (told, ()) = tokio::join!(slow, kill);
    assert!(told.to_string().contains("may or may not have been carried out"), "{told}");
    assert_eq!(calls(&web).await, 2, "it was sent again");
    assert_eq!(result(&client, &replicas.all[1]).await["content"][0]["text"], "2");
    drop(mark);
}

/// Number of tool calls that the server got.
async fn calls(server: &TestServer) -> u64 {
    server.counted("methods/tools/call").await
}

/// §7: a holder that was stopped for longer than its lease finds out that it lost its sessions, and uses them no more.
#[tokio::test]
async fn stopped_replica_forwards_after_it_lost_its_sessions() {
    let (mark, database) = (mark("cluster-stopped"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let replicas = Replicas::start(&servers, database.url()).await;
    let client = replicas.all[0].client("local").await;
    for expected in ["1", "2"] {
        assert_eq!(client.text(&replicas.all[0], "count").await, expected);
    }
    replicas.all[0].signal("-STOP");
    // The call reaches the holder's socket, and nobody knows whether it runs when the holder goes on.
    let told = result(&client, &replicas.all[1]).await;
    assert!(told.to_string().contains("may or may not have been carried out"), "{told}");
    let told = result(&client, &replicas.all[1]).await;
    assert_eq!(told["_meta"]["dev.stayput/state"]["state"], "lost", "{told}");
    for expected in ["1", "2"] {
        assert_eq!(client.text(&replicas.all[1], "count").await, expected);
    }
    replicas.all[0].signal("-CONT");
    let start = Instant::now();
    loop {
        let answer = result(&client, &replicas.all[0]).await;
        if answer["content"][0]["text"] == "3" {
            break;
        }
        assert_eq!(answer["isError"], true, "it goes on with old state: {answer}");
        assert!(start.elapsed() < RECOVERY, "{answer} {}", replicas.logs());
    }
    assert_eq!(client.text(&replicas.all[2], "count").await, "4");
    drop(replicas);
    gone(&mark).await;
}

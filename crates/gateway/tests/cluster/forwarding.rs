//! Requests for a session that another replica holds.

use serde_json::json;
use stayput_testkit::{mcp::TestServer, processes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    modern::Modern,
    replicas::{Database, Replicas, settings},
    support::{gone, mark, stdio},
};

/// Sessions of legacy clients count on, whichever replica gets a call.
async fn check_legacy_clients(database: &Database, name: &str) {
    let (mark, web) = (mark(name), TestServer::http(&["--era", "legacy"]).await);
    let servers = json!({ "local": stdio(&mark, &[]), "web": { "url": web.url() } });
    let replicas = Replicas::start(&servers, database.url()).await;
    let mut clients = Vec::new();
    for number in 0..12 {
        let server = if number % 2 == 0 { "local" } else { "web" };
        clients.push(replicas.next().client(server).await);
    }
    for expected in 1..=7 {
        for client in &clients {
            let count = replicas.count(client).await;
            assert_eq!(count, expected.to_string(), "{}", replicas.logs());
        }
    }
    assert_eq!(processes::with_token(&mark).len(), 6, "one process for each session");
    drop(replicas);
    gone(&mark).await;
}

#[tokio::test]
async fn legacy_sessions_count_on_at_any_replica_on_postgres() {
    check_legacy_clients(&Database::postgres().await, "legacy-postgres").await;
}

#[tokio::test]
async fn legacy_sessions_count_on_at_any_replica_on_redis() {
    check_legacy_clients(&Database::redis().await, "legacy-redis").await;
}

/// Concurrent first calls with one key, at all replicas, meet in one session.
#[tokio::test]
async fn modern_clients_meet_in_one_session_by_its_key() {
    let (mark, database) = (mark("cluster-key"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let replicas = Replicas::start(&servers, database.url()).await;
    let call = async |turn: usize| {
        let client = Modern::of(&replicas.all[turn % 3], "local").named("chat");
        let result = client.result("tools/call", json!({ "name": "count" })).await;
        result["content"][0]["text"].as_str().unwrap().parse::<usize>().unwrap()
    };
    let (one, two, three) = tokio::join!(call(0), call(1), call(2));
    let mut first = [one, two, three];
    first.sort_unstable();
    assert_eq!(first, [1, 2, 3], "{}", replicas.logs());
    for turn in 4..=12 {
        assert_eq!(call(turn).await, turn);
    }
    drop(replicas);
    gone(&mark).await;
}

/// A handle and a key in one request refer to one session at every replica, or to two at none.
#[tokio::test]
async fn handle_and_key_of_one_session_agree_at_any_replica() {
    let (mark, database) = (mark("cluster-names"), Database::redis().await);
    let mut settings = settings(database.url());
    settings["session_tools"] = json!("all");
    let replicas = Replicas::with(&json!({ "local": stdio(&mark, &[]) }), &settings).await;
    let first = Modern::of(&replicas.all[0], "local").named("chat");
    let start = first.call("session_start", json!({})).await;
    let handle = start["structuredContent"]["session_id"].as_str();
    let handle = handle.unwrap_or_else(|| panic!("{start}"));
    assert_eq!(Modern::of(&replicas.all[1], "local").named("other").text("count").await, "1");
    let params = json!({ "name": "count", "_meta": { "dev.stayput/session": handle } });
    for (turn, replica) in replicas.all.iter().enumerate() {
        let client = Modern::of(replica, "local");
        let agreed = client.named("chat").result("tools/call", params.clone()).await;
        let count = (turn + 1).to_string();
        assert_eq!(agreed["content"][0]["text"], count, "{agreed} {}", replicas.logs());
        let refused = client.named("other").result("tools/call", params.clone()).await;
        assert!(refused.to_string().contains("two different sessions"), "{refused}");
    }
    drop(replicas);
    gone(&mark).await;
}

/// The holder reads the same address as the replica that the client is connected to, with every character as it came.
#[tokio::test]
async fn unusual_address_is_passed_on_as_it_came() {
    let (mark, database) = (mark("cluster-address"), Database::redis().await);
    let replicas = Replicas::start(&json!({ "local": stdio(&mark, &[]) }), database.url()).await;
    let client = replicas.all[0].client("local").await;
    assert_eq!(client.text(&replicas.all[0], "count").await, "1");
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count"}}"#;
    for turn in [0, 1] {
        let address = replicas.all[turn].url.trim_start_matches("http://");
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!(
            "POST /mcp/local?\u{e9} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: \
             application/json, text/event-stream\r\nmcp-session-id: {}\r\nconnection: close\r\ncontent-length: \
             {}\r\n\r\n{body}",
            client.id,
            body.len()
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{turn}: {answer}");
    }
    assert_eq!(client.text(&replicas.all[2], "count").await, "4");
    drop(replicas);
    gone(&mark).await;
}

/// Progress comes as it is sent, through the replica that the client is connected to.
#[tokio::test]
async fn stream_of_a_forwarded_call_carries_progress_and_the_answer() {
    let (mark, database) = (mark("cluster-stream"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let replicas = Replicas::start(&servers, database.url()).await;
    let client = replicas.all[0].client("local").await;
    let params = json!({
        "name": "slow", "arguments": { "ms": 300, "steps": 3 }, "_meta": { "progressToken": "p" },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    for replica in &replicas.all {
        let answer = client.send(replica, &body.to_string()).await;
        assert_eq!(answer.header("content-type"), "text/event-stream");
        let mut events = answer.events();
        let mut methods = Vec::new();
        while let Some(message) = events.message().await {
            methods.push(message["method"].as_str().unwrap_or("answer").to_owned());
        }
        assert!(methods.len() > 1 && methods.last().unwrap() == "answer", "{methods:?}");
        assert!(
            methods.iter().rev().skip(1).all(|it| it == "notifications/progress"),
            "{methods:?}"
        );
    }
}

/// The answer to a client of another owner is that of an unknown connection.
#[tokio::test]
async fn connection_is_ended_by_delete_at_any_replica() {
    let (mark, database) = (mark("cluster-delete"), Database::postgres().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let replicas = Replicas::start(&servers, database.url()).await;
    let client = replicas.all[0].client("local").await;
    assert_eq!(client.text(&replicas.all[0], "count").await, "1");
    assert_eq!(client.delete(&replicas.all[1]).await, 200);
    gone(&mark).await;
}

//! Messages outside of calls, questions of servers and streams, at any replica.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::send;

use crate::{
    replicas::{Database, Replicas},
    support::{Client, Gateway, LONG, gone, mark, stdio},
};

/// A question of a server comes on the stream of its call; the answer finds it, whichever replica gets it.
#[tokio::test]
async fn answer_to_a_question_finds_it_at_any_replica() {
    let (mark, database) = (mark("cluster-question"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let replicas = Replicas::start(&servers, database.url()).await;
    let capabilities = json!({ "elicitation": {}, "roots": {}, "sampling": {} });
    let client = replicas.all[0].client_with("local", "2025-11-25", capabilities).await;
    assert_eq!(client.text(&replicas.all[0], "count").await, "1");
    for (asks, answers) in [(1, 2), (0, 1), (2, 0)] {
        let params = json!({ "name": "roots", "arguments": {} });
        let body = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params });
        let mut events = client.send(&replicas.all[asks], &body.to_string()).await.events();
        let question = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
        assert_eq!(question["method"], "roots/list", "{question}");
        let roots = json!([{ "uri": "file:///work" }]);
        let body = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": roots } });
        assert_eq!(client.send(&replicas.all[answers], &body.to_string()).await.status, 202);
        let answer = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
        assert!(answer["result"].to_string().contains("file:///work"), "{answer}");
    }
}

/// Returns how many requests a replica has forwarded, whatever came of them.
async fn forwarded(replica: &Gateway) -> u64 {
    let page = send(Method::GET, &format!("{}/metrics", replica.url), &[], "").await.unwrap();
    let page = String::from_utf8(page.bytes().await.unwrap().to_vec()).unwrap();
    let lines = page.lines().filter(|line| line.starts_with("stayput_forwarded_requests_total{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// The id of a question names the replica that asked: the answer is sent to that one alone. An altered id, and one of another
/// client, are ids of no question.
#[tokio::test]
async fn answer_is_sent_to_the_replica_that_asked_only() {
    let (mark, database) = (mark("cluster-question-id"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let replicas = Replicas::start(&servers, database.url()).await;
    let capabilities = json!({ "elicitation": {}, "roots": {}, "sampling": {} });
    let mut clients = Vec::new();
    for _ in 0..2 {
        let client = replicas.all[0].client_with("local", "2025-11-25", capabilities.clone()).await;
        assert_eq!(client.text(&replicas.all[2], "count").await, "1");
        clients.push(client);
    }
    let params = json!({ "name": "roots", "arguments": {} });
    let body = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params });
    let mut events = clients[0].send(&replicas.all[1], &body.to_string()).await.events();
    let question = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
    let id = question["id"].as_str().unwrap_or_else(|| panic!("{question}"));
    let answer = async |client: &Client, id: &str, uri: &str| {
        let roots = json!([{ "uri": uri }]);
        let body = json!({ "jsonrpc": "2.0", "id": id, "result": { "roots": roots } });
        assert_eq!(client.send(&replicas.all[2], &body.to_string()).await.status, 202);
    };
    let before = forwarded(&replicas.all[2]).await;
    for at in [5, id.len() / 2, id.len() - 3] {
        let other = if &id[at..=at] == "x" { "y" } else { "x" };
        let altered = format!("{}{other}{}", &id[..at], &id[at + 1..]);
        answer(&clients[0], &altered, "file:///altered").await;
    }
    answer(&clients[1], id, "file:///foreign").await;
    assert_eq!(forwarded(&replicas.all[2]).await, before, "an id of no question was passed on");
    answer(&clients[0], id, "file:///work").await;
    assert_eq!(forwarded(&replicas.all[2]).await, before + 1);
    let done = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
    assert!(done["result"].to_string().contains("file:///work"), "{done}");
    drop(replicas);
    gone(&mark).await;
}

/// A holder that stops lets its calls end, so it still accepts the answers that they wait for.
#[tokio::test]
async fn answer_to_a_question_finds_it_at_a_replica_that_stops() {
    let (mark, database) = (mark("cluster-stop-question"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let replicas = Replicas::start(&servers, database.url()).await;
    let capabilities = json!({ "elicitation": {}, "roots": {}, "sampling": {} });
    let client = replicas.all[0].client_with("local", "2025-11-25", capabilities).await;
    assert_eq!(client.text(&replicas.all[0], "count").await, "1");
    let params = json!({ "name": "roots", "arguments": {} });
    let body = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params });
    let mut events = client.send(&replicas.all[1], &body.to_string()).await.events();
    let question = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
    assert_eq!(question["method"], "roots/list", "{question}");
    replicas.all[0].signal("-TERM");
    let stops = async {
        let url = format!("{}/readyz", replicas.all[0].url);
        while send(Method::GET, &url, &[], "").await.unwrap().status != 503 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, stops).await.expect("the holder stops");
    let roots = json!([{ "uri": "file:///work" }]);
    let body = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": roots } });
    assert_eq!(client.send(&replicas.all[2], &body.to_string()).await.status, 202);
    let answer = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
    assert!(answer["result"].to_string().contains("file:///work"), "{answer}");
    drop(replicas);
    gone(&mark).await;
}

/// A cancellation reaches the call at the holder.
#[tokio::test]
async fn cancellation_reaches_a_call_at_another_replica() {
    let (mark, database) = (mark("cluster-cancel"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let replicas = Replicas::start(&servers, database.url()).await;
    let client = replicas.all[0].client("local").await;
    let params = json!({
        "name": "slow", "arguments": { "ms": 60_000, "steps": 600 }, "_meta": { "progressToken": 1 },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params });
    let mut events = client.send(&replicas.all[1], &body.to_string()).await.events();
    assert_eq!(events.message().await.unwrap()["method"], "notifications/progress");
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 },
    });
    assert_eq!(client.send(&replicas.all[2], &cancel.to_string()).await.status, 202);
    let rest = async { while events.message().await.is_some() {} };
    tokio::time::timeout(LONG, rest).await.expect("the stream of a cancelled call ends");
    assert_eq!(client.text(&replicas.all[2], "count").await, "1");
}

/// The stream of a connection is opened anywhere, and carries what its server sends outside of calls.
#[tokio::test]
async fn listening_client_gets_messages_through_any_replica() {
    let (mark, database) = (mark("cluster-listen"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let replicas = Replicas::start(&servers, database.url()).await;
    let client = replicas.all[0].client("local").await;
    assert_eq!(client.text(&replicas.all[0], "count").await, "1");
    let mut stream = client.get(&replicas.all[1], None).await.events();
    let notify = client.call(&replicas.all[2], "notify", json!({ "tool": "grown" })).await;
    assert!(notify["result"].is_object(), "{notify}");
    let changed = async {
        loop {
            let message = stream.message().await.unwrap();
            if message["method"] == "notifications/tools/list_changed" {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, changed).await.expect("the client hears of the change");
    let listed = client.request(&replicas.all[2], "tools/list", json!({})).await;
    assert!(listed["result"].to_string().contains("grown"), "{listed}");
}

/// 2024-11-05: posts reach the replica that has the stream.
#[tokio::test]
async fn posts_of_the_old_transport_reach_the_stream() {
    let (mark, database) = (mark("cluster-sse"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let replicas = Replicas::start(&servers, database.url()).await;
    let url = format!("{}/sse/local", replicas.all[0].url);
    let stream = send(Method::GET, &url, &[("accept", "text/event-stream")], "").await.unwrap();
    let mut events = stream.events();
    let endpoint = events.next().await.unwrap();
    let endpoint = String::from_utf8(endpoint.data().to_vec()).unwrap();
    let mut turn = 0;
    let mut post = async |message: &Value| {
        turn += 1;
        let url = format!("{}{endpoint}", replicas.all[turn % 3].url);
        let headers = [("content-type", "application/json")];
        let answer = send(Method::POST, &url, &headers, message.to_string()).await.unwrap();
        assert_eq!(answer.status, 202);
    };
    post(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2024-11-05", "capabilities": {},
        "clientInfo": { "name": "old", "version": "1" },
    }}))
    .await;
    let greeting = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
    assert!(greeting["result"].is_object(), "{greeting}");
    post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    for count in 1..=6 {
        post(&json!({ "jsonrpc": "2.0", "id": count, "method": "tools/call", "params": { "name": "count" } }))
            .await;
        let answer = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], count.to_string(), "{answer}");
    }
    drop(events);
    gone(&mark).await;
}

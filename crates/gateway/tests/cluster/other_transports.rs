//! Clients without a request of HTTP for each message, at a replica that does not hold what they use: batches, and the
//! 2024-11-05 transport.

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::{Events, send};
use tokio::time::timeout;

use crate::{
    replicas::{Database, Replicas},
    support::{Gateway, LONG, gone, mark, stdio},
};

/// Servers with a process for each session, and with one for all.
fn servers(mark: &str) -> Value {
    let mut shared = stdio(mark, &[]);
    shared["stayput"] = json!({ "isolation": "shared" });
    json!({ "local": stdio(mark, &[]), "shared": shared })
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn call(id: u64, tool: &str, arguments: &Value) -> Value {
    request(id, "tools/call", &json!({ "name": tool, "arguments": arguments }))
}

/// Calls `count` in a session that the request names.
fn count_in(id: u64, session: &str) -> Value {
    let meta = json!({ "dev.stayput/session": session });
    request(id, "tools/call", &json!({ "name": "count", "arguments": {}, "_meta": meta }))
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// Makes a replica the holder of the session with this key.
async fn hold(replica: &Gateway, key: &str) {
    let client = replica.client_with("local", "2025-11-25", json!({ "roots": {} })).await;
    let answer = client.send(replica, &count_in(1, key).to_string()).await;
    assert_eq!(text(&answer.message().await), "1");
}

/// The calls of a batch go to the holders of their sessions and processes, each answer has the id of its request, and each
/// call runs once.
#[tokio::test]
async fn batch_is_answered_at_any_replica() {
    let (mark, database) = (mark("cluster-batch"), Database::redis().await);
    let replicas = Replicas::start(&servers(&mark), database.url()).await;
    let (one, two) = (&replicas.all[0], &replicas.all[1]);
    hold(one, "key:chat").await;
    let client = one.client_with("local", "2025-03-26", json!({})).await;
    assert_eq!(client.text(one, "count").await, "1");
    let other = request(9, "ping", &json!({}));
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" });
    let batch = json!([
        call(7, "count", &json!({})),
        note,
        other,
        count_in(8, "key:chat"),
        call(10, "no such tool", &json!({}))
    ]);
    let answers = client.send(two, &batch.to_string()).await;
    assert_eq!(answers.status, 200);
    let answers = answers.json().await;
    let ids: Vec<_> = answers.as_array().unwrap().iter().map(|it| it["id"].clone()).collect();
    assert_eq!(ids, [7, 9, 8, 10], "{answers}");
    assert_eq!((text(&answers[0]), text(&answers[2])), ("2", "2"), "{answers}");
    assert_eq!(client.text(two, "count").await, "3");
    let shared = one.client_with("shared", "2025-03-26", json!({})).await;
    assert_eq!(shared.text(one, "count").await, "1");
    let batch = json!([call(1, "count", &json!({})), call(2, "count", &json!({}))]);
    let answers = shared.send(two, &batch.to_string()).await.json().await;
    assert_eq!((text(&answers[0]), text(&answers[1])), ("2", "3"), "{answers}");
    drop(replicas);
    gone(&mark).await;
}

/// Client of the 2024-11-05 transport.
struct Caller {
    events: Events,
    url: String,
}

impl Caller {
    async fn open(gateway: &Gateway, server: &str) -> Self {
        let url = format!("{}/sse/{server}", gateway.url);
        let answer = send(Method::GET, &url, &[("accept", "text/event-stream")], "").await.unwrap();
        let mut events = answer.events();
        let first = timeout(LONG, events.next()).await.unwrap().unwrap();
        let endpoint = String::from_utf8(first.data().to_vec()).unwrap();
        let mut caller = Self { events, url: format!("{}{endpoint}", gateway.url) };
        let greeting = caller.ask(&hello("2024-11-05")).await;
        assert!(greeting["result"]["serverInfo"].is_object(), "{greeting}");
        caller
    }

    async fn say(&self, message: &Value) {
        let headers = [("content-type", "application/json")];
        let sent = send(Method::POST, &self.url, &headers, message.to_string());
        assert_eq!(timeout(LONG, sent).await.unwrap().unwrap().status, 202);
    }

    async fn hear(&mut self) -> Value {
        timeout(LONG, self.events.message()).await.unwrap().unwrap()
    }

    async fn ask(&mut self, message: &Value) -> Value {
        self.say(message).await;
        self.hear().await
    }
}

fn hello(version: &str) -> Value {
    let capabilities = json!({ "roots": {} });
    let params = json!({ "protocolVersion": version, "capabilities": capabilities,
        "clientInfo": { "name": "old", "version": "1" } });
    request(0, "initialize", &params)
}

/// A client of the 2024-11-05 transport uses a process and a session that another replica holds: progress and questions
/// come on its stream, and its answers reach the server.
#[tokio::test]
async fn sse_client_uses_what_another_replica_holds() {
    let (mark, database) = (mark("cluster-sse"), Database::redis().await);
    let replicas = Replicas::start(&servers(&mark), database.url()).await;
    let (one, two) = (&replicas.all[0], &replicas.all[1]);
    hold(one, "key:chat").await;
    assert_eq!(one.client("shared").await.text(one, "count").await, "1");
    let mut shared = Caller::open(two, "shared").await;
    assert_eq!(text(&shared.ask(&call(7, "count", &json!({}))).await), "2", "{}", replicas.logs());
    let mut local = Caller::open(two, "local").await;
    assert_eq!(text(&local.ask(&count_in(8, "key:chat")).await), "2");
    assert_eq!(text(&local.ask(&call(9, "count", &json!({}))).await), "1");
    let meta = json!({ "progressToken": "p", "dev.stayput/session": "key:chat" });
    let arguments = json!({ "ms": 100, "steps": 2 });
    let slow = json!({ "name": "slow", "arguments": arguments, "_meta": meta });
    let mut heard = local.ask(&request(10, "tools/call", &slow)).await;
    let mut steps = 0;
    while heard["method"] == "notifications/progress" {
        steps += 1;
        heard = local.hear().await;
    }
    assert!(steps > 0 && heard["id"] == 10, "{heard}");
    let meta = json!({ "dev.stayput/session": "key:chat" });
    let asks = json!({ "name": "roots", "arguments": {}, "_meta": meta });
    let question = local.ask(&request(11, "tools/call", &asks)).await;
    assert_eq!(question["method"], "roots/list", "{question}");
    let roots = json!({ "roots": [{ "uri": "file:///work" }] });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": roots });
    let answered = local.ask(&answer).await;
    assert!(answered["result"].to_string().contains("file:///work"), "{answered}");
    drop((shared, local, replicas));
    gone(&mark).await;
}

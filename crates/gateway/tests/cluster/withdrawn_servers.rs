//! Streams of forwarded requests, whose client loses its server.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::{Events, send};
use tokio::time::{Instant, timeout};

use crate::{
    replicas::{Database, Replicas, settings},
    support::{Gateway, LONG, gone, mark, stdio},
};

/// Longest time that a stream may outlive the access of its client.
const SOON: Duration = Duration::from_secs(1);

/// Client with a token.
struct Holder {
    bearer: String,
    hash: Value,
}

impl Holder {
    fn new(name: &str) -> Self {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_stayput"));
        let made = program.args(["token", name, "--json"]).output().unwrap().stdout;
        let made: Value = serde_json::from_slice(&made).unwrap();
        let bearer = format!("Bearer {}", made["token"].as_str().unwrap());
        Self { bearer, hash: made["hash"].clone() }
    }

    /// Opens a connection, and calls `count` so that the gateway holds its session.
    async fn connect(&self, gateway: &Gateway, server: &str, tool: &str) -> String {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" } });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let headers = [("authorization", &*self.bearer)];
        let answer = gateway.post(server, &headers, &hello.to_string()).await;
        let id = answer.header("mcp-session-id").to_owned();
        let counted = self.call(gateway, server, &id, (tool, json!({}))).await;
        assert_eq!(counted["result"]["content"][0]["text"], "1", "{counted}");
        id
    }

    async fn open(
        &self,
        gateway: &Gateway,
        server: &str,
        id: &str,
        (tool, arguments): (&str, Value),
    ) -> Events {
        let meta = json!({ "progressToken": "p" });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        let headers = [("authorization", &*self.bearer), ("mcp-session-id", id)];
        gateway.post(server, &headers, &call.to_string()).await.events()
    }

    async fn call(&self, gateway: &Gateway, server: &str, id: &str, call: (&str, Value)) -> Value {
        let (tool, arguments) = call;
        let params = json!({ "name": tool, "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        let headers = [("authorization", &*self.bearer), ("mcp-session-id", id)];
        gateway.post(server, &headers, &call.to_string()).await.message().await
    }
}

/// A stream that another replica writes ends within a second when the server of its call is withdrawn from its client, also on
/// the path of all servers. Another client's stream goes on.
#[tokio::test]
async fn forwarded_stream_ends_with_the_access_to_its_server() {
    let (mark, database) = (mark("cluster-withdrawn"), Database::redis().await);
    let (ann, bob) = (Holder::new("ann"), Holder::new("bob"));
    let mut settings = settings(database.url());
    settings["auth"] = json!({ "tokens": { "ann": ann.hash, "bob": bob.hash } });
    let mut servers = json!({ "local": stdio(&mark, &[]), "other": stdio(&mark, &[]) });
    let replicas = Replicas::with(&servers, &settings).await;
    let (holder, ingress) = (&replicas.all[0], &replicas.all[1]);
    let mut streams = Vec::new();
    for (client, server, prefix) in
        [(&ann, "local", ""), (&ann, "", "local__"), (&bob, "local", "")]
    {
        let (count, slow) = (format!("{prefix}count"), format!("{prefix}slow"));
        let id = client.connect(holder, server, &count).await;
        let call = (&*slow, json!({ "ms": 20_000, "steps": 200 }));
        let mut events = client.open(ingress, server, &id, call).await;
        let first = timeout(LONG, events.message()).await.unwrap().unwrap();
        assert_eq!(first["method"], "notifications/progress", "{first}");
        streams.push(events);
    }
    servers["local"]["stayput"] = json!({ "for": { "sub": "bob" } });
    ingress.configure(servers);
    ingress.hang_up();
    let is_withdrawn = async {
        let headers = [("authorization", &*ann.bearer), ("accept", "text/event-stream")];
        while send(Method::GET, &ingress.at("local"), &headers, "").await.unwrap().status != 404 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, is_withdrawn).await.expect("the configuration is read anew");
    let begin = Instant::now();
    let mut bobs = streams.pop().unwrap();
    for mut events in streams {
        while timeout(LONG, events.message()).await.unwrap().is_some() {}
        assert!(begin.elapsed() < SOON, "{:?} {}", begin.elapsed(), ingress.log());
    }
    let next = timeout(LONG, bobs.message()).await.unwrap().unwrap();
    assert_eq!(next["method"], "notifications/progress", "{next}");
    drop((bobs, replicas));
    gone(&mark).await;
}

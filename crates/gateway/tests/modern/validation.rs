//! Validation of modern requests: headers, `_meta`, versions, methods.

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::{TestServer, send};

use crate::{
    kit::{Modern, headers, meta, modern_stdio, post, refusal, request},
    support::{Gateway, mark, stdio},
};

/// Starts a gateway in front of a legacy and a modern server.
async fn both(name: &str) -> Gateway {
    let (old, new) = (mark(&format!("{name}-old")), mark(&format!("{name}-new")));
    Gateway::start(json!({ "old": stdio(&old, &[]), "new": modern_stdio(&new, &[]) })).await
}

/// Sends a request with `change`d headers and body to both servers, and returns their common status and code.
async fn tried(
    gateway: &Gateway,
    change: impl Fn(&mut Vec<(String, String)>, &mut Value),
) -> (u16, i64) {
    let mut seen = Vec::new();
    for server in ["old", "new"] {
        let mut body = request(&json!(1), "tools/call", json!({ "name": "echo", "arguments": {} }));
        let mut all = headers(&body);
        all.push(("stayput-session".to_owned(), "key:a".to_owned()));
        change(&mut all, &mut body);
        let url = format!("{}/mcp/{server}", gateway.url);
        let answer = post(&url, &all, &body.to_string()).await;
        let (status, code, message) = refusal(answer).await;
        assert_eq!(message["id"], 1, "{message}");
        seen.push((status, code));
    }
    assert_eq!(seen[0], seen[1]);
    seen[0]
}

fn set(headers: &mut Vec<(String, String)>, name: &str, value: Option<&str>) {
    headers.retain(|(other, _)| other != name);
    headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
}

/// Covers the required members of `_meta`, and the version that the header has to repeat.
#[tokio::test]
async fn request_without_version_or_capabilities_is_refused() {
    let gateway = both("speaks").await;
    for key in ["protocolVersion", "clientCapabilities"] {
        let key = format!("io.modelcontextprotocol/{key}");
        for wrong in [None, Some(json!(7))] {
            let seen = tried(&gateway, |_, body| {
                let meta = body["params"]["_meta"].as_object_mut().unwrap();
                meta.remove(&key);
                meta.extend(wrong.clone().map(|wrong| (key.clone(), wrong)));
            });
            assert_eq!(seen.await, (400, -32602), "{key} {wrong:?}");
        }
    }
    let seen = tried(&gateway, |_, body| {
        body["params"].as_object_mut().unwrap().remove("_meta");
    });
    assert_eq!(seen.await, (400, -32602));
    for said in [None, Some("2025-11-25"), Some("2099-01-01")] {
        let seen = tried(&gateway, |headers, _| set(headers, "mcp-protocol-version", said));
        assert_eq!(seen.await, (400, -32020), "{said:?}");
    }
}

#[tokio::test]
async fn unknown_version_is_refused_with_the_known_versions() {
    let gateway = both("versions").await;
    for server in ["old", "new"] {
        for version in ["2099-01-01", "DRAFT-7"] {
            let more = json!({ "io.modelcontextprotocol/protocolVersion": version });
            let body = request(&json!(1), "tools/list", json!({ "_meta": more }));
            let mut all = headers(&body);
            set(&mut all, "mcp-protocol-version", Some(version));
            let url = format!("{}/mcp/{server}", gateway.url);
            let answer = post(&url, &all, &body.to_string()).await;
            let (status, code, message) = refusal(answer).await;
            assert_eq!((status, code), (400, -32022), "{message}");
            let data = &message["error"]["data"];
            assert_eq!(data["requested"], version);
            assert_eq!(
                data["supported"],
                json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
            );
        }
    }
}

#[tokio::test]
async fn headers_have_to_repeat_the_body() {
    let gateway = both("repeat").await;
    for name in ["mcp-method", "mcp-name"] {
        for said in [None, Some("other"), Some("=?base64?%%%?=")] {
            let seen = tried(&gateway, |headers, _| set(headers, name, said));
            assert_eq!(seen.await, (400, -32020), "{name} {said:?}");
        }
    }
    // A repeated header is refused, even if both values are right.
    let seen = tried(&gateway, |headers, _| {
        headers.push(("mcp-method".to_owned(), "tools/call".to_owned()));
    });
    assert_eq!(seen.await, (400, -32020));
    // An encoded value is equal to the plain one.
    let client = Modern::of(&gateway, "new");
    let body = request(&json!(1), "tools/call", json!({ "name": "echo", "arguments": {} }));
    let mut all = headers(&body);
    set(&mut all, "mcp-name", Some("=?base64?ZWNobw==?="));
    assert_eq!(post(&client.url, &all, &body.to_string()).await.status, 200);
}

/// Covers arguments that are repeated in headers, on servers that declare them and on those that do not.
#[tokio::test]
async fn marked_arguments_are_repeated_in_headers() {
    let server = TestServer::http(&["--era", "modern"]).await;
    let mark = mark("marked");
    let servers = json!({ "old": stdio(&mark, &[]), "new": { "url": server.url() } });
    let gateway = Gateway::start(servers).await;
    let arguments = json!({ "region": "Zürich", "priority": 7 });
    let params = json!({ "name": "region", "arguments": arguments });
    for name in ["old", "new"] {
        let client = Modern::of(&gateway, name).named("a");
        let good = client
            .with("mcp-param-region", "=?base64?WsO8cmljaA==?=")
            .with("mcp-param-priority", "7");
        let result = good.result("tools/call", params.clone()).await;
        let said: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(said, arguments);
        for bad in [
            client.with("mcp-param-priority", "7"),
            client.with("mcp-param-region", "Bern").with("mcp-param-priority", "7"),
            client.with("mcp-param-region", "=?base64?WsO8cmljaA==?="),
        ] {
            let (status, code, _) = bad.refused("tools/call", params.clone()).await;
            assert_eq!((status, code), (400, -32020));
        }
    }
    assert_eq!(server.counted("tools/region").await, 1, "what is refused here goes nowhere");
}

#[tokio::test]
async fn accept_header_without_both_content_types_is_refused() {
    let gateway = both("accept").await;
    for accepted in ["application/json", "text/event-stream"] {
        let seen = tried(&gateway, |headers, _| set(headers, "accept", Some(accepted)));
        assert_eq!(seen.await, (406, -32600));
    }
}

#[tokio::test]
async fn methods_removed_from_the_era_are_unknown() {
    let gateway = both("removed").await;
    for server in ["old", "new"] {
        let client = Modern::of(&gateway, server).named("a");
        for method in [
            "initialize",
            "ping",
            "logging/setLevel",
            "resources/subscribe",
            "resources/unsubscribe",
            "nobody/knows",
            "tasks/get",
        ] {
            let (status, code, _) = client.refused(method, json!({ "uri": "test://count" })).await;
            assert_eq!((status, code), (404, -32601), "{server} {method}");
        }
        for method in [Method::GET, Method::DELETE] {
            let headers = [("mcp-protocol-version", "2026-07-28"), ("accept", "text/event-stream")];
            let answer = send(method.clone(), &client.url, &headers, "").await.unwrap();
            assert_eq!(answer.status, 405, "{method}");
            assert_eq!(answer.header("allow"), "POST");
        }
    }
}

#[tokio::test]
async fn only_requests_are_answered() {
    let gateway = both("kinds").await;
    for server in ["old", "new"] {
        let url = format!("{}/mcp/{server}", gateway.url);
        let version = [("mcp-protocol-version".to_owned(), "2026-07-28".to_owned())];
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": { "requestId": 1, "_meta": meta() } });
        let answer = post(&url, &version, &told.to_string()).await;
        assert_eq!(answer.status, 202);
        assert!(answer.bytes().await.unwrap().is_empty());
        for body in [
            json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
            json!([request(&json!(1), "tools/list", json!({}))]),
        ] {
            let (status, code, _) = refusal(post(&url, &version, &body.to_string()).await).await;
            assert_eq!((status, code), (400, -32600));
        }
        let answer = post(&url, &version, "{").await;
        assert_eq!(refusal(answer).await.0, 400);
    }
}

/// Invariant 9: modern requests get no `Mcp-Session-Id`, and theirs is ignored. A legacy client on the same path still
/// has its session.
#[tokio::test]
async fn both_eras_are_served_on_one_path() {
    let gateway = both("both").await;
    let legacy = gateway.client("old").await;
    let modern = Modern::of(&gateway, "old").named("a");
    assert_eq!(legacy.text(&gateway, "count").await, "1");
    assert_eq!(modern.text("count").await, "1");
    assert_eq!(modern.with("mcp-session-id", &legacy.id).text("count").await, "2");
    assert_eq!(modern.with("mcp-session-id", "nonsense").text("count").await, "3");
    assert_eq!(legacy.text(&gateway, "count").await, "2");
    // Without modern `_meta`, `initialize` is legacy whatever the header says.
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" } } });
    let version = [("mcp-protocol-version", "2026-07-28")];
    let answer = gateway.post("old", &version, &body.to_string()).await;
    assert!(!answer.header("mcp-session-id").is_empty());
    assert_eq!(answer.json().await["result"]["protocolVersion"], "2025-11-25");
}

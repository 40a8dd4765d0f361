//! Audit and trace export of every call.

use std::{path::Path, process::Command, sync::Arc};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    sync::Mutex,
};

use crate::{
    kit::{sessions, until_some},
    support::{Gateway, gone, mark, stdio},
};

/// Waits until the audit file has `count` lines, and returns them.
async fn lines(path: &Path, count: usize) -> Vec<Value> {
    until_some("audit", async || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        let all: Vec<Value> = whole.collect();
        (all.len() >= count).then_some(all)
    })
    .await
}

/// Issue 6: each call writes one audit line with owner, server, tool, outcome and duration. Arguments are written only
/// if the configuration asks for them.
#[tokio::test]
async fn each_call_writes_an_audit_line() {
    let mark = mark("audit");
    let mut server = stdio(&mark, &[]);
    server["stayput"] = json!({ "tools": { "deny": ["env"] } });
    let servers = json!({ "test": server });
    let gateway = Gateway::with(servers, json!({ "audit": { "to": "audit.jsonl" } })).await;
    let client = gateway.client("test").await;
    let secret = json!({ "text": "a-secret-argument" });
    client.call(&gateway, "note_add", secret).await;
    for tool in ["fail", "nothing", "env", "crash"] {
        client.call(&gateway, tool, json!({})).await;
    }
    client.request(&gateway, "resources/read", json!({ "uri": "test://x" })).await;
    let path = gateway.folder.path().join("audit.jsonl");
    let all = lines(&path, 6).await;
    let found: Vec<_> = all
        .iter()
        .map(|it| (it["tool"].as_str().unwrap_or("-"), it["outcome"].as_str().unwrap()))
        .collect();
    let expected = [
        ("note_add", "ok"),
        ("fail", "tool_error"),
        ("nothing", "error"),
        ("env", "denied"),
        ("crash", "lost"),
        ("-", "error"),
    ];
    assert_eq!(found, expected, "{all:?}");
    let session = sessions(&gateway, "").await[0]["id"].clone();
    for line in &all {
        assert_eq!((&line["owner"], &line["server"]), (&json!("anonymous"), &json!("test")));
        assert!(line["ms"].as_f64().is_some_and(|ms| (0.0..30_000.0).contains(&ms)), "{line}");
        assert_eq!(line["at"].as_str().unwrap().len(), "2026-07-28T00:00:00.000Z".len());
        assert!(line["outcome"] == "denied" || line["session"] == session, "{line}");
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("a-secret-argument") && !text.contains(&client.id), "{text}");
    drop(gateway);
    gone(&mark).await;
}

/// SIGHUP reopens the audit file. A stopping gateway writes all pending lines.
#[tokio::test]
async fn audit_is_rotated_and_flushed_at_stop() {
    let mark = mark("audit-rotated");
    let audit = json!({ "to": "logs/audit.jsonl", "arguments": true });
    let mut gateway =
        Gateway::with(json!({ "test": stdio(&mark, &[]) }), json!({ "audit": audit })).await;
    let client = gateway.client("test").await;
    client.call(&gateway, "echo", json!({ "n": 1.5 })).await;
    let path = gateway.folder.path().join("logs/audit.jsonl");
    assert_eq!(lines(&path, 1).await[0]["arguments"], json!({ "n": 1.5 }));
    std::fs::rename(&path, path.with_extension("1")).unwrap();
    let pid = gateway.pid().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    until_some("new file", async || path.exists().then_some(())).await;
    client.text(&gateway, "count").await;
    assert!(gateway.stop().success());
    assert_eq!(lines(&path, 1).await[0]["tool"], "count");
    assert_eq!(lines(&path.with_extension("1"), 1).await.len(), 1);
    gone(&mark).await;
}

/// Trace collector. Records the bodies that it gets, and checks the credentials.
async fn collector() -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let taken = Arc::<Mutex<Vec<Value>>>::default();
    let into = taken.clone();
    tokio::runtime::Handle::current().spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let into = into.clone();
            tokio::runtime::Handle::current().spawn(async move {
                let mut stream = BufReader::new(stream);
                loop {
                    let (mut head, mut length) = (String::new(), 0);
                    while !head.ends_with("\r\n\r\n") {
                        let mut line = String::new();
                        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                            return;
                        }
                        let lower = line.to_lowercase();
                        if let Some(value) = lower.strip_prefix("content-length:") {
                            length = value.trim().parse().unwrap();
                        }
                        head.push_str(&line);
                    }
                    let mut body = vec![0; length];
                    stream.read_exact(&mut body).await.unwrap();
                    let mut request: Value = serde_json::from_slice(&body).unwrap();
                    request["head"] = head.into();
                    into.lock().await.push(request);
                    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                    stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    (url, taken)
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let all = span["attributes"].as_array().unwrap();
    let found = all.iter().find(|it| it["key"] == key);
    static NOTHING: Value = Value::Null;
    found.map_or(&NOTHING, |it| &it["value"]["stringValue"])
}

/// Issue 6: the trace context of a call is passed on to the server, and the call is a span of that trace.
#[tokio::test]
async fn call_is_a_span_of_its_trace() {
    let mark = mark("spans");
    let (url, taken) = collector().await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("seen");
    let server = stdio(&mark, &["--log", log.to_str().unwrap()]);
    let otlp = json!({ "url": url, "headers": { "Authorization": "Bearer for-the-collector" } });
    let gateway = Gateway::with(json!({ "test": server }), json!({ "otlp": otlp })).await;
    let client = gateway.client("test").await;
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let sampled = format!("00-{trace}-{parent}-01");
    let call = |tool: &str, meta: Value| {
        let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
        json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string()
    };
    let headers = [("mcp-session-id", &*client.id), ("traceparent", &*sampled)];
    gateway.post("test", &headers, &call("count", json!({}))).await.message().await;
    // The trace context in the message takes precedence over the header. A trace that is not sampled is not exported.
    let unsampled = json!({ "traceparent": sampled.replace("0af7", "ffff").replace("-01", "-00") });
    gateway.post("test", &headers, &call("pid", unsampled)).await.message().await;
    let fresh = [("mcp-session-id", &*client.id)];
    gateway.post("test", &fresh, &call("fail", json!({}))).await.message().await;
    let spans = until_some("spans", async || {
        let all = taken.lock().await;
        let each =
            all.iter().flat_map(|it| it["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array());
        let spans: Vec<Value> = each.flatten().cloned().collect();
        (spans.len() >= 2).then_some(spans)
    })
    .await;
    assert_eq!(spans.len(), 2, "{spans:?}");
    let (count, fail) = (&spans[0], &spans[1]);
    assert_eq!((&count["traceId"], &count["parentSpanId"]), (&json!(trace), &json!(parent)));
    assert_eq!((&count["name"], &count["kind"]), (&json!("tools/call count"), &json!(2)));
    assert_eq!(attribute(count, "stayput.server"), "test");
    assert_eq!(attribute(count, "stayput.outcome"), "ok");
    assert_eq!(attribute(count, "gen_ai.tool.name"), "count");
    let session = &sessions(&gateway, "").await[0]["id"];
    assert_eq!(attribute(count, "stayput.session"), session);
    let nanos = |name: &str| count[name].as_str().unwrap().parse::<u128>().unwrap();
    assert!(nanos("endTimeUnixNano") > nanos("startTimeUnixNano"));
    assert_eq!((&fail["status"]["code"], &fail["parentSpanId"]), (&json!(2), &Value::Null));
    assert_ne!(fail["traceId"], trace);
    let head = taken.lock().await[0]["head"].as_str().unwrap().to_owned();
    assert!(head.starts_with("POST /v1/traces ") && head.contains("for-the-collector"), "{head}");
    // The server gets the trace with the span of the call as the parent.
    let seen = std::fs::read_to_string(&log).unwrap();
    let span = count["spanId"].as_str().unwrap();
    assert!(seen.contains(&format!("00-{trace}-{span}-01")), "{seen}");
    assert!(seen.contains(&format!("00-ffff{}-", &trace[4..])), "{seen}");
    assert!(!gateway.log().contains("for-the-collector"));
    drop(gateway);
    gone(&mark).await;
}

/// An unreachable collector blocks nothing. Lost spans are counted and logged once.
#[tokio::test]
async fn unreachable_collector_does_not_block_calls() {
    let mark = mark("spans-away");
    let otlp = json!({ "url": "http://127.0.0.1:1" });
    let mut gateway =
        Gateway::with(json!({ "test": stdio(&mark, &[]) }), json!({ "otlp": otlp })).await;
    let client = gateway.client("test").await;
    for number in 1..=3 {
        assert_eq!(client.text(&gateway, "count").await, number.to_string());
    }
    until_some("sentence", async || gateway.log().contains("spans cannot be sent").then_some(()))
        .await;
    let data = gateway.folder.path().join("store.db.d");
    let page = crate::kit::over_socket(&data, http::Method::GET, "/metrics").await;
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    assert!(page.contains("stayput_spans_dropped_total 3"), "{page}");
    assert!(gateway.stop().success());
    gone(&mark).await;
}

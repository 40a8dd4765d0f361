//! Programs as clients: each snippet of `docs/programs.md`, the hint for their authors, and the paths that end in `/mcp`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod snippets;
mod support;

use serde_json::{Value, json};
use stayput_testkit::{mcp::send, peers};
use support::{Gateway, LONG};
use tokio::{process::Command, time::timeout};

/// Starts the gateway of the quickstart.
async fn quickstart(stayput: Value) -> Gateway {
    let servers = json!({ "notes": { "command": "${stayput}", "args": ["demo-server"] } });
    Gateway::with(servers, stayput).await
}

/// Posts a message to a path of the gateway.
async fn post(gateway: &Gateway, path: &str, headers: &[(&str, &str)], body: &Value) -> Value {
    let mut all = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    all.extend_from_slice(headers);
    let url = format!("{}{path}", gateway.url);
    let sent = send(http::Method::POST, &url, &all, body.to_string());
    timeout(LONG, sent).await.unwrap().unwrap().message().await
}

/// Sends a request of the modern era.
async fn modern(gateway: &Gateway, path: &str, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params["name"].as_str().map(str::to_owned);
    let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    headers.extend(name.as_deref().map(|name| ("mcp-name", name)));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    post(gateway, path, &headers, &body).await
}

async fn tools(gateway: &Gateway, path: &str) -> Vec<Value> {
    let listed = modern(gateway, path, "tools/list", json!({})).await;
    listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}")).clone()
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// Every snippet of the page runs as it is written, and a second run finds the state of the first.
#[tokio::test]
async fn every_snippet_for_programs_runs_and_finds_its_session_again() {
    if peers::are_left_out() {
        return;
    }
    let gateway = quickstart(json!({})).await;
    let desk = snippets::Desk::new();
    let mut run = 0;
    for mut snippet in snippets::of_page("docs/programs.md") {
        if snippet.kind == "text" || snippet.text.starts_with("stayput serve") {
            continue;
        }
        snippet.text = snippet.text.replace("http://127.0.0.1:7337", &gateway.url);
        for expected in ["1", "2"] {
            let said = desk.run(&snippet, gateway.folder.path()).await;
            let compact: String = said.split_whitespace().collect();
            let found = compact == expected || compact.contains(&format!(r#""text":"{expected}""#));
            assert!(found, "{expected} is not what it prints:\n{}\n{said}", snippet.text);
        }
        run += 1;
    }
    assert_eq!(run, 9, "all of the page");
}

/// The refusal of a call without a session tells the author of a program what to do, and that works.
#[tokio::test]
async fn refused_call_names_the_url_and_the_header_for_programs() {
    let gateway = quickstart(json!({})).await;
    let call = json!({ "name": "count", "arguments": {} });
    let refused = modern(&gateway, "/mcp/notes", "tools/call", call.clone()).await;
    assert_eq!(refused["result"]["isError"], true);
    let url = format!("{}/mcp/notes/~NAME", gateway.url);
    assert!(text(&refused).contains(&url), "{refused}");
    assert!(text(&refused).contains("`Stayput-Session: key:NAME`"), "{refused}");
    assert!(gateway.log().contains(&url), "{}", gateway.log());
    let counted = modern(&gateway, "/mcp/notes/~NAME", "tools/call", call.clone()).await;
    assert_eq!(text(&counted), "1");
    let all = modern(&gateway, "/mcp", "tools/call", json!({ "name": "notes__count" })).await;
    assert!(text(&all).contains(&format!("{}/mcp/~NAME", gateway.url)), "{all}");
}

/// Places that are switched off are not recommended.
#[tokio::test]
async fn refused_call_names_only_enabled_places() {
    let off = json!({ "identify": { "path": false, "header": false } });
    let gateway = quickstart(off).await;
    let call = json!({ "name": "count", "arguments": {} });
    let refused = modern(&gateway, "/mcp/notes", "tools/call", call).await;
    assert!(!text(&refused).contains("program"), "{refused}");
    assert!(!gateway.log().contains("~NAME"), "{}", gateway.log());
}

/// Invariant 9: a URL with a session lists the server's tools only; a header or `_meta` changes no list.
#[tokio::test]
async fn session_in_the_url_adds_nothing_to_the_tools() {
    let gateway = quickstart(json!({})).await;
    let plain = tools(&gateway, "/mcp/notes").await;
    assert!(plain.iter().any(|tool| tool["name"] == "session_start"));
    let takes = |tool: &Value| !tool["inputSchema"]["properties"]["session_id"].is_null();
    assert!(takes(&plain[0]));
    for path in ["/mcp/notes/~a", "/notes/~a/mcp"] {
        let named = tools(&gateway, path).await;
        let names: Vec<_> = named.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["note_add", "note_list", "count", "whoami"], "{path}");
        assert!(!named.iter().any(takes), "{named:?}");
    }
    let all = tools(&gateway, "/mcp/~a").await;
    assert!(all.iter().all(|tool| tool["name"].as_str().unwrap().starts_with("notes__")));
    assert!(!all.iter().any(takes), "{all:?}");
    let header = [
        ("stayput-session", "key:a"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ];
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "dev.stayput/session": "key:a",
    }}});
    let same = post(&gateway, "/mcp/notes", &header, &body).await;
    assert_eq!(same["result"]["tools"], json!(plain));
}

/// `handles: always` adds the argument in every case.
#[tokio::test]
async fn session_in_the_url_keeps_arguments_that_are_always_on() {
    let servers = json!({ "notes": { "command": "${stayput}", "args": ["demo-server"],
        "stayput": { "handles": "always" } } });
    let gateway = Gateway::start(servers).await;
    let named = tools(&gateway, "/mcp/notes/~a").await;
    assert!(!named[0]["inputSchema"]["properties"]["session_id"].is_null(), "{named:?}");
}

/// Both forms of a path lead to the same server and session.
#[tokio::test]
async fn path_with_the_server_first_reaches_the_same_session() {
    let gateway = quickstart(json!({})).await;
    let call = json!({ "name": "count", "arguments": {} });
    for (path, expected) in
        [("/mcp/notes/~a", "1"), ("/notes/~a/mcp", "2"), ("/notes/~mcp/mcp", "1")]
    {
        let counted = modern(&gateway, path, "tools/call", call.clone()).await;
        assert_eq!(text(&counted), expected, "{path}");
    }
    let all = json!({ "name": "notes__count", "arguments": {} });
    assert_eq!(text(&modern(&gateway, "/~a/mcp", "tools/call", all).await), "3");
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" } } });
    let greeting = post(&gateway, "/notes/mcp", &[], &hello).await;
    assert_eq!(greeting["result"]["protocolVersion"], "2025-11-25", "{greeting}");
    for path in ["/other/mcp", "/notes", "/notes/x/mcp", "/mcp/notes/mcp"] {
        let refused = post(&gateway, path, &[], &hello).await;
        assert!(refused["error"]["message"].as_str().unwrap().contains("/mcp/notes"), "{refused}");
    }
}

/// R013: the SDKs of 2024-11-05 find the server under a path that ends in `/sse`.
#[tokio::test]
async fn legacy_sse_clients_reach_the_path_with_the_server_first() {
    if peers::are_left_out() {
        return;
    }
    let gateway = quickstart(json!({})).await;
    for peer in peers::old_clients() {
        let mut command = Command::from(peer.command());
        command.arg(format!("{}/notes/sse", gateway.url)).kill_on_drop(true);
        let output = timeout(LONG, command.output()).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(r#"["1","2"]"#) || said.contains(r#"["1", "2"]"#), "{said}");
    }
}

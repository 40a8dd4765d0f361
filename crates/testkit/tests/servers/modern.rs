//! Streamable HTTP without sessions.

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::{TestServer, send};

use super::kit::{call, initialize, modern, post, post_modern, request, soon, text, until};

fn plain(request: Value) -> Value {
    modern(request, &json!({}))
}

#[tokio::test]
async fn both_eras_are_served_at_once() {
    let server = TestServer::http(&[]).await;
    let count = plain(call(1, "count", &json!({})));
    for n in 1..=2 {
        let answer = post_modern(server.url(), &count).await;
        assert_eq!(answer.header("mcp-session-id"), "");
        assert_eq!(text(&soon(answer.message()).await), n.to_string());
    }
    let client = super::kit::Client::open(&server, &json!({})).await;
    assert_eq!(text(&client.call(1, "count", &json!({})).await), "1");
    let found = post_modern(server.url(), &plain(request(1, "server/discover", &json!({})))).await;
    let found = found.json().await;
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2025-11-25")), "{versions:?}");
    assert_eq!(
        found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "stayput-testserver"
    );
}

#[tokio::test]
async fn requests_that_break_the_rules_get_the_status_of_the_specification() {
    let server = TestServer::http(&["--era", "modern"]).await;
    let url = server.url();
    let is = async |answer: stayput_testkit::mcp::Answer, status: u16, code: i64| {
        assert_eq!(answer.status, status);
        assert_eq!(answer.json().await["error"]["code"], code);
    };
    is(post(url, &[], &initialize(&json!({}))).await, 400, -32022).await;
    let bare = request(1, "tools/list", &json!({}));
    is(post(url, &[("mcp-protocol-version", "2026-07-28")], &bare).await, 400, -32602).await;
    let list = plain(bare);
    is(post(url, &[("mcp-protocol-version", "2026-07-28")], &list).await, 400, -32020).await;
    let other = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call")];
    is(post(url, &other, &list).await, 400, -32020).await;
    is(post_modern(url, &plain(request(1, "no/such", &json!({})))).await, 404, -32601).await;
    let mut future = list.clone();
    future["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2099-01-01".into();
    let headers = [("mcp-protocol-version", "2099-01-01"), ("mcp-method", "tools/list")];
    is(post(url, &headers, &future).await, 400, -32022).await;
    is(post_modern(url, &plain(call(1, "elicit", &json!({})))).await, 400, -32021).await;
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(send(method, url, &[], "").await.unwrap().status, 405);
    }
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled" });
    assert_eq!(post(url, &[], &note).await.status, 202);
}

#[tokio::test]
async fn arguments_that_travel_as_headers_are_checked() {
    let server = TestServer::http(&["--era", "modern"]).await;
    let say = plain(call(1, "region", &json!({ "region": "Zürich", "priority": 3 })));
    let base = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "region"),
    ];
    let region = ("mcp-param-region", "=?base64?WsO8cmljaA==?=");
    for (priority, status) in [("3", 200), ("4", 400)] {
        let headers = [&base[..], &[region, ("mcp-param-priority", priority)]].concat();
        assert_eq!(post(server.url(), &headers, &say).await.status, status);
    }
    assert_eq!(post(server.url(), &base, &say).await.status, 400, "the headers are missing");
    let header = plain(call(2, "header", &json!({ "name": "Mcp-Name" })));
    assert_eq!(text(&soon(post_modern(server.url(), &header).await.message()).await), "header");
}

#[tokio::test]
async fn a_tool_asks_by_input_required_and_goes_on_with_the_second_try() {
    let server = TestServer::http(&[]).await;
    let first = modern(call(1, "elicit", &json!({})), &json!({ "elicitation": {} }));
    let asked = soon(post_modern(server.url(), &first).await.message()).await;
    assert_eq!(asked["result"]["resultType"], "input_required");
    let question = &asked["result"]["inputRequests"]["question"];
    assert_eq!(question["method"], "elicitation/create");
    let mut second = first.clone();
    let said = json!({ "action": "accept", "content": { "name": "Jo" } });
    second["id"] = 2.into();
    second["params"]["inputResponses"] = json!({ "question": said });
    let forgotten = soon(post_modern(server.url(), &second).await.message()).await;
    assert_eq!(forgotten["error"]["code"], -32602, "the state did not come back");
    second["params"]["requestState"] = asked["result"]["requestState"].clone();
    let answer = soon(post_modern(server.url(), &second).await.message()).await;
    assert_eq!(answer["result"]["structuredContent"], said);
}

#[tokio::test]
async fn going_away_is_cancellation() {
    for option in ["--sse", "--json"] {
        let server = TestServer::http(&[option]).await;
        let slow = plain(call(1, "slow", &json!({ "ms": 3_600_000 })));
        if option == "--sse" {
            drop(post_modern(server.url(), &slow).await);
        } else {
            let url = server.url().to_owned();
            let waiting = tokio::runtime::Handle::current()
                .spawn(async move { post_modern(&url, &slow).await });
            until(async || server.counted("tools/slow").await == 1).await;
            waiting.abort();
        }
        until(async || server.counted("cancels").await == 1).await;
    }
}

#[tokio::test]
async fn whoever_listens_is_told_what_changes() {
    let server = TestServer::http(&[]).await;
    let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": ["test://count"] });
    let listen = plain(request(7, "subscriptions/listen", &json!({ "notifications": wanted })));
    let mut events = post_modern(server.url(), &listen).await.events();
    let first = soon(events.message()).await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], wanted);
    soon(post_modern(server.url(), &plain(call(8, "notify", &json!({})))).await.message()).await;
    for method in ["notifications/tools/list_changed", "notifications/resources/updated"] {
        let told = soon(events.message()).await.unwrap();
        assert_eq!(told["method"], method);
        assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);
    }
}

#[tokio::test]
async fn log_lines_come_only_where_they_are_wanted() {
    let server = TestServer::http(&[]).await;
    let mut log = plain(call(1, "log", &json!({ "n": 2 })));
    let mut quiet = post_modern(server.url(), &log).await.events();
    assert_eq!(text(&soon(quiet.message()).await.unwrap()), "2");
    log["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = "debug".into();
    let mut events = post_modern(server.url(), &log).await.events();
    for _ in 0..2 {
        assert_eq!(soon(events.message()).await.unwrap()["method"], "notifications/message");
    }
    assert_eq!(text(&soon(events.message()).await.unwrap()), "2");
}

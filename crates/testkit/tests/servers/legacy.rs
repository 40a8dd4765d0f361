//! Streamable HTTP with sessions, and HTTP+SSE.

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::{TestServer, send};

use super::kit::{Client, call, initialize, post, request, soon, text, until};

#[tokio::test]
async fn a_session_keeps_its_state_apart() {
    let server = TestServer::http(&[]).await;
    let (one, two) =
        (Client::open(&server, &json!({})).await, Client::open(&server, &json!({})).await);
    assert_ne!(one.session, two.session);
    assert_eq!(text(&one.call(1, "count", &json!({})).await), "1");
    assert_eq!(text(&one.call(2, "count", &json!({})).await), "2");
    assert_eq!(text(&two.call(1, "count", &json!({})).await), "1");
    let stats = server.stats().await;
    assert_eq!(stats["initialize"], 2);
    assert_eq!(stats["initialized"], 2);
    assert_eq!(stats["sessions"], 2);
    assert_eq!(stats["tools"]["count"], 3);
    assert_eq!(stats["connections"], 7, "this client opens one for each request");
}

#[tokio::test]
async fn requests_that_break_the_rules_get_the_status_of_the_specification() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let client = Client::open(&server, &json!({})).await;
    let list = request(1, "tools/list", &json!({}));
    let url = server.url();
    assert_eq!(post(url, &[], &list).await.status, 400, "no session id");
    assert_eq!(post(url, &[("mcp-session-id", "foreign")], &list).await.status, 404);
    let old = [("mcp-session-id", &*client.session), ("mcp-protocol-version", "1999-01-01")];
    assert_eq!(post(url, &old, &list).await.status, 400, "unknown revision");
    let evil = [("mcp-session-id", &*client.session), ("origin", "http://evil.example")];
    assert_eq!(post(url, &evil, &list).await.status, 403);
    let again = post(url, &client.headers(), &initialize(&json!({}))).await;
    assert_eq!(again.status, 400, "a second initialize");
    let json_only = [("content-type", "application/json"), ("accept", "application/json")];
    let refused = send(Method::POST, url, &json_only, list.to_string()).await.unwrap();
    assert_eq!(refused.status, 406);
    let refused = send(Method::POST, url, &[("accept", "*/*")], list.to_string()).await.unwrap();
    assert_eq!(refused.status, 415);
    assert_eq!(send(Method::PUT, url, &[], "").await.unwrap().status, 405);
    let unknown = client.post(&request(1, "no/such", &json!({}))).await;
    assert_eq!(
        (unknown.status.as_u16(), &unknown.message().await["error"]["code"]),
        (200, &json!(-32601))
    );
    let discover = post(url, &[], &request(1, "server/discover", &json!({}))).await;
    assert_eq!(discover.status, 400);
    assert_eq!(discover.json().await["error"]["code"], -32000, "which is no modern error");
}

#[tokio::test]
async fn a_deleted_session_is_unknown() {
    let server = TestServer::http(&[]).await;
    let client = Client::open(&server, &json!({})).await;
    assert_eq!(client.delete().await.status, 200);
    assert_eq!(client.delete().await.status, 404);
    assert_eq!(client.post(&call(1, "count", &json!({}))).await.status, 404);
    assert_eq!(server.counted("deletes").await, 2);
    let server = TestServer::http(&["--quirk", "no-delete", "--quirk", "no-get"]).await;
    let client = Client::open(&server, &json!({})).await;
    assert_eq!(client.delete().await.status, 405);
    assert_eq!(client.get(&[]).await.status, 405);
}

#[tokio::test]
async fn answers_come_in_the_form_that_was_asked_for() {
    for (option, call_form, list_form) in [
        ("--json", "application/json", "application/json"),
        ("--sse", "text/event-stream", "text/event-stream"),
        ("--stateless", "text/event-stream", "application/json"),
    ] {
        let server = TestServer::http(&[option]).await;
        let answer = post(server.url(), &[], &initialize(&json!({}))).await;
        let session = answer.header("mcp-session-id").to_owned();
        assert_eq!(session.is_empty(), option == "--stateless");
        let client = Client { url: server.url().to_owned(), session };
        let answer = client.post(&call(1, "count", &json!({}))).await;
        assert_eq!(answer.header("content-type"), call_form);
        assert_eq!(text(&soon(answer.message()).await), "1");
        let answer = client.post(&request(1, "tools/list", &json!({}))).await;
        assert_eq!(answer.header("content-type"), list_form);
        let again = client.call(2, "count", &json!({})).await;
        assert_eq!(text(&again), if option == "--stateless" { "1" } else { "2" });
    }
}

/// A stream begins with an id, is closed by the server, and goes on where it was.
#[tokio::test]
async fn a_closed_stream_is_taken_up_by_get() {
    let server = TestServer::http(&["--quirk", "close-stream", "--retry-ms", "7"]).await;
    let client = Client::open(&server, &json!({})).await;
    let mut slow = call(1, "slow", &json!({ "ms": 50, "steps": 1 }));
    slow["params"]["_meta"] = json!({ "progressToken": 5 });
    let mut events = client.post(&slow).await.events();
    let first = soon(events.next()).await.unwrap();
    assert!(first.data().is_empty());
    assert_eq!(first.retry().unwrap().as_millis(), 7);
    while soon(events.next()).await.is_some() {}
    let last = events.last_id().unwrap().to_owned();
    let mut events = client.get(&[("last-event-id", &last)]).await.events();
    let mut seen = Vec::new();
    while let Some(message) = soon(events.message()).await {
        seen.push(message);
    }
    assert_eq!(text(seen.last().unwrap()), "done");
    // What was already sent does not come again, and it can be replayed any number of times.
    let mut again = client.get(&[("last-event-id", &last)]).await.events();
    assert!(soon(again.message()).await.is_some());
    assert_eq!(client.get(&[("last-event-id", "99-1")]).await.status, 400);
    let late = events.last_id().unwrap().to_owned();
    let mut nothing = client.get(&[("last-event-id", &late)]).await.events();
    assert!(soon(nothing.next()).await.is_none());
}

#[tokio::test]
async fn an_older_revision_has_no_priming_event() {
    let server = TestServer::http(&["--revision", "2025-06-18", "--sse"]).await;
    let answer = post(server.url(), &[], &initialize(&json!({}))).await;
    let mut events = answer.events();
    let hello: Value = serde_json::from_slice(soon(events.next()).await.unwrap().data()).unwrap();
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
}

#[tokio::test]
async fn what_belongs_to_no_call_travels_on_the_get_stream() {
    let server = TestServer::http(&[]).await;
    let client = Client::open(&server, &json!({})).await;
    client.call(1, "notify", &json!({})).await;
    let mut events = client.get(&[]).await.events();
    let told = soon(events.message()).await.unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(client.get(&[]).await.status, 409, "one at a time");
    client.call(2, "notify", &json!({})).await;
    assert!(soon(events.message()).await.is_some());
    drop(events);
    until(async || client.get(&[]).await.status == 200).await;
}

#[tokio::test]
async fn a_tool_asks_the_client_on_the_stream_of_the_call() {
    for option in ["--sse", "--json"] {
        let server = TestServer::http(&[option]).await;
        let client = Client::open(&server, &json!({ "sampling": {} })).await;
        let get = client.get(&[]).await;
        let ask = call(1, "sample", &json!({}));
        let answer = client.post(&ask);
        let said = json!({ "role": "assistant", "content": { "type": "text", "text": "hi" } });
        let reply = |question: &Value| {
            assert_eq!(question["method"], "sampling/createMessage");
            json!({ "jsonrpc": "2.0", "id": question["id"], "result": said })
        };
        let last = if option == "--sse" {
            let mut events = answer.await.events();
            let question = soon(events.message()).await.unwrap();
            assert_eq!(client.post(&reply(&question)).await.status, 202);
            soon(events.message()).await.unwrap()
        } else {
            let mut events = get.events();
            let asking = async {
                let question = soon(events.message()).await.unwrap();
                client.post(&reply(&question)).await
            };
            let (answer, asked) = tokio::join!(answer, asking);
            assert_eq!(asked.status, 202);
            answer.json().await
        };
        assert_eq!(last["result"]["structuredContent"], said);
        assert_eq!(server.counted("answers").await, 1);
    }
}

#[tokio::test]
async fn going_away_cancels_nothing_but_a_cancellation_does() {
    let server = TestServer::http(&[]).await;
    let client = Client::open(&server, &json!({})).await;
    let slow = call(1, "slow", &json!({ "ms": 3_600_000 }));
    drop(client.post(&slow).await);
    let cancel = json!({ "requestId": 1 });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel });
    assert_eq!(server.counted("cancels").await, 0);
    assert_eq!(client.post(&cancel).await.status, 202);
    until(async || server.counted("cancels").await == 1).await;
}

#[tokio::test]
async fn the_oldest_transport_answers_on_its_stream() {
    let server = TestServer::sse(&[]).await;
    let accept = [("accept", "text/event-stream")];
    let mut events = send(Method::GET, server.url(), &accept, "").await.unwrap().events();
    let endpoint = soon(events.next()).await.unwrap();
    assert_eq!(endpoint.name(), "endpoint");
    let path = String::from_utf8(endpoint.into_data()).unwrap();
    let url = server.url().replace("/sse", &path);
    assert_eq!(post(&url, &[], &initialize(&json!({}))).await.status, 202);
    assert_eq!(soon(events.message()).await.unwrap()["id"], 0);
    for n in 1..3 {
        assert_eq!(post(&url, &[], &call(n, "count", &json!({}))).await.status, 202);
        let counted = soon(events.next()).await.unwrap();
        assert_eq!(counted.name(), "message");
        assert_eq!(text(&serde_json::from_slice(counted.data()).unwrap()), n.to_string());
    }
    drop(events);
    until(async || server.counted("sessions").await == 0).await;
    assert_eq!(post(&url, &[], &call(3, "count", &json!({}))).await.status, 404);
}

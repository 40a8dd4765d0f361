//! Clients of 2026-07-28 over stdio: without `initialize` and without headers.

use serde_json::{Value, json};

use crate::{
    kit::{Home, Window, servers, text},
    support::{gone, mark},
};

/// Returns the parameters of a modern request.
fn params(mut params: Value, more: &Value) -> Value {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    for (name, value) in more.as_object().unwrap() {
        meta[name] = value.clone();
    }
    params["_meta"] = meta;
    params
}

async fn count(window: &mut Window, arguments: Value) -> Value {
    let call = params(json!({ "name": "count", "arguments": arguments }), &json!({}));
    window.ask("tools/call", call).await
}

/// R052: the process is the connection in this era, too. Handles separate its chats.
#[tokio::test]
async fn modern_client_has_the_session_of_its_process() {
    let (home, mark) = (Home::new(), mark("stdio-modern"));
    let mut window = home.alone(&mark, &[]);
    let found = window.ask("server/discover", params(json!({}), &json!({}))).await;
    assert!(found["result"]["supportedVersions"].to_string().contains("2026-07-28"), "{found}");
    let listed = window.ask("tools/list", params(json!({}), &json!({}))).await;
    assert!(listed.to_string().contains("session_start"), "{listed}");
    for n in 1..=2 {
        let counted = count(&mut window, json!({})).await;
        assert_eq!(
            (text(&counted), &counted["result"]["resultType"]),
            (n.to_string(), &json!("complete"))
        );
        let state = &counted["result"]["_meta"]["dev.stayput/state"];
        assert!(state["session"].is_string(), "{counted}");
    }
    let start = params(json!({ "name": "session_start", "arguments": {} }), &json!({}));
    let started = window.ask("tools/call", start).await;
    let handle = started["result"]["structuredContent"]["session_id"].clone();
    assert_eq!(text(&count(&mut window, json!({ "session_id": handle })).await), "1");
    assert_eq!(text(&count(&mut window, json!({})).await), "3");
    assert_eq!(servers(&mark), 2);
    // A host that sends `initialize` after modern requests stays in the same session.
    window.greet().await;
    assert_eq!(window.count().await, "4");
    assert!(window.close().await.success());
    gone(&mark).await;
}

/// Missing members and unknown versions are refused with the codes of the era. Only the body counts.
#[tokio::test]
async fn modern_request_is_validated_by_its_body() {
    let (home, mark) = (Home::new(), mark("stdio-body"));
    let mut window = home.alone(&mark, &[]);
    let mut odd = params(json!({}), &json!({}));
    odd["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2030-01-01");
    let refused = window.ask("tools/list", odd).await;
    assert_eq!(refused["error"]["code"], -32_022, "{refused}");
    let mut bare = params(json!({}), &json!({}));
    bare["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!(null);
    let refused = window.ask("tools/list", bare).await;
    assert_eq!(refused["error"]["code"], -32_602, "{refused}");
    let refused = window.ask("ping", params(json!({}), &json!({}))).await;
    assert_eq!(refused["error"]["code"], -32_601, "{refused}");
    assert!(window.close().await.success());
    gone(&mark).await;
}

/// Progress comes before the answer, and `notifications/cancelled` ends a call.
#[tokio::test]
async fn modern_call_reports_progress_and_can_be_cancelled() {
    let (home, mark) = (Home::new(), mark("stdio-flow"));
    let mut window = home.alone(&mark, &[]);
    let slow = json!({ "name": "slow", "arguments": { "ms": 300, "steps": 3 } });
    let answer = window.ask("tools/call", params(slow, &json!({ "progressToken": 5 }))).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert_eq!(window.heard.len(), 4, "{:?}", window.heard);
    let slow = json!({ "name": "slow", "arguments": { "ms": 600_000, "steps": 2 } });
    let id = window.send("tools/call", params(slow, &json!({}))).await;
    let twice = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": params(json!({ "name": "count", "arguments": {} }), &json!({})) });
    window.say(&twice.to_string()).await;
    assert_eq!(window.answer(id).await["error"]["code"], -32_600, "the id is taken");
    let back = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    window.say(&back.to_string()).await;
    // The id is free again when the call has ended.
    for _ in 0..1_500 {
        window.say(&twice.to_string()).await;
        let answer = window.answer(id).await;
        if answer["error"].is_null() {
            assert_eq!(text(&answer), "1");
            assert!(window.close().await.success());
            return gone(&mark).await;
        }
    }
    panic!("the call is still there");
}

//! Several chats on one connection, identified by handles and keys.

use serde_json::json;

use crate::{
    kit::{Home, servers},
    support::{gone, mark},
};

/// R146, R148, R150, R155: each chat starts a session, passes its handle, and has its own process.
#[tokio::test]
async fn two_chats_on_one_connection_have_two_processes() {
    let (home, mark) = (Home::new(), mark("stdio-chats"));
    let mut window = home.alone(&mark, &[]);
    window.greet().await;
    let listed = window.ask("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap().clone();
    let find = |name: &str| tools.iter().find(|tool| tool["name"] == name).cloned();
    let count = find("count").unwrap();
    assert_eq!(count["inputSchema"]["properties"]["session_id"]["type"], "string", "{count}");
    let start = find("session_start").unwrap_or_else(|| panic!("{listed}"));
    assert!(start["description"].as_str().unwrap().contains("session_id"), "{start}");
    let mut handles = Vec::new();
    for _ in 0..2 {
        let started = window.call("session_start", json!({})).await;
        let handle = started["result"]["structuredContent"]["session_id"].as_str();
        handles.push(handle.unwrap_or_else(|| panic!("{started}")).to_owned());
    }
    for n in 1..=3 {
        for handle in &handles {
            let counted = window.text("count", json!({ "session_id": handle })).await;
            assert_eq!(counted, n.to_string());
        }
    }
    // R156: a call without a handle runs in the session of the connection, not in that of another chat.
    assert_eq!(window.count().await, "1");
    assert_eq!(servers(&mark), 3);
    // R149: an unknown handle is answered with an error, and nothing runs.
    let unknown =
        window.call("count", json!({ "session_id": "sp_0000000000000000000000000000000a" }));
    assert_eq!(unknown.await["result"]["isError"], true);
    assert_eq!(servers(&mark), 3);
    assert!(window.close().await.success());
    gone(&mark).await;
}

/// A chat that lost its handle resumes its session by name. A window of another user cannot.
#[tokio::test]
async fn name_resumes_a_session() {
    let (home, mark) = (Home::new(), mark("stdio-name"));
    let mut window = home.alone(&mark, &["--session", "work"]);
    window.greet().await;
    assert_eq!(window.count().await, "1");
    assert_eq!(window.text("count", json!({ "session_id": "key:work" })).await, "2");
    let started = window.call("session_start", json!({ "name": "tax" })).await;
    let handle = started["result"]["structuredContent"]["session_id"].as_str().unwrap().to_owned();
    assert_eq!(window.text("count", json!({ "session_id": handle })).await, "1");
    let again = window.call("session_start", json!({ "name": "tax" })).await;
    let other = again["result"]["structuredContent"]["session_id"].as_str().unwrap().to_owned();
    assert_ne!(handle, other, "a handle is never given out twice");
    assert_eq!(window.text("count", json!({ "session_id": other })).await, "2");
    // An ended session is replaced, and the connection still has a session.
    let ended = window.call("session_end", json!({})).await;
    assert_eq!(ended["result"]["structuredContent"]["ended"], true, "{ended}");
    assert_eq!(window.count().await, "1");
    assert!(window.close().await.success());
    gone(&mark).await;
}

/// R168: each chat that the host names has its own session.
#[tokio::test]
async fn hints_of_a_host_separate_its_chats() {
    let (home, mark) = (Home::new(), mark("stdio-hints"));
    let mut window = home.alone(&mark, &[]);
    window.greet().await;
    for n in 1..=2 {
        for chat in ["a", "b"] {
            let params = json!({ "name": "count", "arguments": {},
                "_meta": { "vscode.conversationId": chat } });
            let counted = window.ask("tools/call", params).await;
            assert_eq!(counted["result"]["content"][0]["text"], n.to_string());
        }
    }
    assert_eq!(servers(&mark), 2);
    assert!(window.close().await.success());
    gone(&mark).await;
}

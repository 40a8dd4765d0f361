//! Explicit scopes and raw lists, as bindings to other languages use them.

use crate::support::{ProcessMarker, count, hub};
use serde_json::{Value, json};
use stayput::{
    Error, Hub,
    ffi::{self, InSession as _, ListKind, within},
};

/// E04, R008, R010.
#[tokio::test]
async fn nested_run_joins_and_only_the_root_ends_it() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let run = ffi::begin_run(&hub, None);
    assert!(run.is_root());
    let scope = run.scope();
    assert_eq!(count(&hub).in_session(scope.clone()).await, 1);
    let inner = within(scope.clone(), || ffi::begin_run(&hub, None));
    assert!(!inner.is_root());
    assert_eq!(count(&hub).in_session(inner.scope()).await, 2);
    inner.finish().await.unwrap();
    // A call belongs to the scope in which it was created, wherever it is awaited.
    let call = within(scope.clone(), || hub.call("counter", "count", json!({})));
    assert_eq!(call.await.unwrap().text(), "3");
    run.finish().await.unwrap();
    marker.wait_until_gone().await;
    let late = within(scope, || hub.call("counter", "count", json!({}))).await;
    assert!(matches!(late, Err(Error::SessionEnded { .. })), "{late:?}");
}

/// E04: the end of a run ends what it opened, not what is current at its end.
#[tokio::test]
async fn run_that_ends_in_another_session_leaves_that_session() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let other = hub.session("other").await.unwrap();
    assert_eq!(other.run(count(&hub)).await, 1);
    let run = ffi::begin_run(&hub, None);
    assert_eq!(count(&hub).in_session(run.scope()).await, 1);
    assert_eq!(marker.processes().len(), 2);
    other.run(async { run.finish().await.unwrap() }).await;
    assert_eq!(marker.processes().len(), 1);
    assert_eq!(other.run(count(&hub)).await, 2);
}

/// R011.
#[tokio::test]
async fn dropped_run_ends() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let run = ffi::begin_run(&hub, None);
    assert_eq!(count(&hub).in_session(run.scope()).await, 1);
    drop(run);
    marker.wait_until_gone().await;
}

/// R009, R082, R083.
#[tokio::test]
async fn sessions_and_sub_agents_have_scopes() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    assert!(ffi::current_session(&hub).is_none());
    let chat = hub.session("chat").await.unwrap();
    let scope = ffi::session_scope(&chat);
    assert_eq!(count(&hub).in_session(scope.clone()).await, 1);
    let found = within(scope.clone(), || ffi::current_session(&hub)).unwrap();
    assert_eq!(found.id(), chat.id());
    let own = within(scope.clone(), || ffi::isolated_scope(&hub, "counter")).unwrap();
    assert_eq!(count(&hub).in_session(own.clone()).await, 1);
    assert_eq!(marker.processes().len(), 2);
    drop(own);
    crate::support::until("the isolated server ends with its scope", || {
        marker.processes().len() == 1
    })
    .await;
    let without = within(scope.clone(), || ffi::denied_scope(&hub, "counter")).unwrap();
    let denied = within(without, || hub.call("counter", "count", json!({}))).await;
    assert!(matches!(denied, Err(Error::ServerDenied { .. })), "{denied:?}");
    assert_eq!(count(&hub).in_session(scope.clone()).await, 2);
    // Work that is bound to the session and called by a sub-agent keeps the rules of the sub-agent.
    let outside = ffi::denied_scope(&hub, "counter").unwrap();
    assert_eq!(outside.session(), None);
    let called = within(outside, || ffi::bound_scope(&scope));
    assert_eq!(called.session(), Some(chat.id()));
    let denied = within(called, || hub.call("counter", "count", json!({}))).await;
    assert!(matches!(denied, Err(Error::ServerDenied { .. })), "{denied:?}");
    let unknown = ffi::denied_scope(&hub, "conter").unwrap_err();
    assert_eq!(unknown.kind(), "unknown_server");
}

/// Items come as the server wrote them.
#[tokio::test]
async fn lists_keep_unknown_members() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let tools = ffi::list(&hub, None, "counter", ListKind::Tools).await.unwrap();
    let first: Value = serde_json::from_str(tools[0].get()).unwrap();
    assert_eq!(
        (&first["name"], &first["inputSchema"]["type"]),
        (&json!("count"), &json!("object"))
    );
    let chat = hub.session("chat").await.unwrap();
    let same = ffi::list(&hub, Some(&chat), "counter", ListKind::Tools).await.unwrap();
    assert_eq!(same.len(), tools.len());
}

#[tokio::test]
async fn configuration_can_be_a_text() {
    let text = r#"{ "mcpServers": { "a": { "command": "x" }, "b": { "command": "x", "disabled": true } } }"#;
    let hub = Hub::builder().config_text(text, "/here/mcp.json").build().unwrap();
    assert_eq!(hub.server_names(), ["a"]);
    let wrong = Hub::builder().config_text("{ 1 }", "/here/mcp.json").build().unwrap_err();
    assert!(wrong.to_string().starts_with("/here/mcp.json"), "{wrong}");
}

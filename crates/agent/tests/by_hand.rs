//! Scopes that are entered and left by hand, as bindings to other languages do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod world;

use serde_json::{Value, json};
use stayput::{
    Error, Hub,
    by_hand::{self, InSession as _, List, within},
};
use world::{Token, count, hub};

/// R008, R010: a run that was begun by hand is the root, another one inside joins it, and only the root ends it.
#[tokio::test]
async fn a_run_is_begun_joined_and_finished() {
    let token = Token::new();
    let hub = hub(&token);
    let run = by_hand::begin(&hub);
    assert!(run.is_root());
    let scope = run.scope();
    assert_eq!(count(&hub).in_session(scope.clone()).await, 1);
    let inner = within(scope.clone(), || by_hand::begin(&hub));
    assert!(!inner.is_root());
    assert_eq!(count(&hub).in_session(inner.scope()).await, 2);
    inner.finish().await.unwrap();
    // A call belongs to the scope that it is made in, whoever awaits it.
    let call = within(scope.clone(), || hub.call("counter", "count", json!({})));
    assert_eq!(call.await.unwrap().text(), "3");
    run.finish().await.unwrap();
    token.gone().await;
    let late = within(scope, || hub.call("counter", "count", json!({}))).await;
    assert!(matches!(late, Err(Error::Ended { .. })), "{late:?}");
}

/// R011: a run that is dropped is over.
#[tokio::test]
async fn a_run_that_is_dropped_is_over() {
    let token = Token::new();
    let hub = hub(&token);
    let run = by_hand::begin(&hub);
    assert_eq!(count(&hub).in_session(run.scope()).await, 1);
    drop(run);
    token.gone().await;
}

/// R009, R082, R083: scopes of sessions, and of sub-agents in them.
#[tokio::test]
async fn sessions_and_sub_agents_have_scopes() {
    let token = Token::new();
    let hub = hub(&token);
    assert!(by_hand::session(&hub).is_none() && by_hand::isolated("counter").is_none());
    let chat = hub.session("chat").await.unwrap();
    let scope = by_hand::scope(&chat);
    assert_eq!(count(&hub).in_session(scope.clone()).await, 1);
    let found = within(scope.clone(), || by_hand::session(&hub)).unwrap();
    assert_eq!(found.id(), chat.id());
    let own = within(scope.clone(), || by_hand::isolated("counter")).unwrap();
    assert_eq!(count(&hub).in_session(own.clone()).await, 1);
    assert_eq!(token.alive().len(), 2);
    drop(own);
    world::until("what was its own ends with it", || token.alive().len() == 1).await;
    let without = within(scope.clone(), || by_hand::denied("counter")).unwrap();
    let denied = within(without, || hub.call("counter", "count", json!({}))).await;
    assert!(matches!(denied, Err(Error::Denied { .. })), "{denied:?}");
    assert_eq!(count(&hub).in_session(scope).await, 2);
}

/// Lists come as the server wrote them, with what no type of ours has a field for.
#[tokio::test]
async fn lists_are_as_servers_wrote_them() {
    let token = Token::new();
    let hub = hub(&token);
    let tools = by_hand::list(&hub, None, "counter", List::Tools).await.unwrap();
    let first: Value = serde_json::from_str(tools[0].get()).unwrap();
    assert_eq!(
        (&first["name"], &first["inputSchema"]["type"]),
        (&json!("count"), &json!("object"))
    );
    let chat = hub.session("chat").await.unwrap();
    let same = by_hand::list(&hub, Some(&chat), "counter", List::Tools).await.unwrap();
    assert_eq!(same.len(), tools.len());
}

/// A configuration that is not in a file is read as one that could be.
#[tokio::test]
async fn a_configuration_can_be_a_text() {
    let text = r#"{ "mcpServers": { "a": { "command": "x" }, "b": { "command": "x", "disabled": true } } }"#;
    let hub = Hub::builder().config_text(text, "/here/mcp.json").build().unwrap();
    assert_eq!(hub.server_names(), ["a"]);
    let wrong = Hub::builder().config_text("{ 1 }", "/here/mcp.json").build().unwrap_err();
    assert!(wrong.to_string().starts_with("/here/mcp.json"), "{wrong}");
}

//! Recipes of the documentation, each with two concurrent clients.

use serde_json::{Value, json};
use stayput_testkit::{peers, processes::with_token};

use crate::{
    recipe,
    support::{Client, Gateway, until},
};

/// Calls a tool and returns its text.
async fn text(gateway: &Gateway, client: &Client, tool: &str, arguments: Value) -> String {
    let answer = client.call(gateway, tool, arguments).await;
    let result = &answer["result"];
    assert!(result["content"].is_array() && result["isError"] != true, "{answer}");
    let texts = result["content"].as_array().unwrap().iter().filter_map(|it| it["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns the processes that use the private folder of a session.
fn users(gateway: &Gateway) -> Vec<u32> {
    with_token(gateway.sessions().to_str().unwrap())
}

/// Counts the private folders.
fn folders(gateway: &Gateway) -> usize {
    std::fs::read_dir(gateway.sessions()).map_or(0, Iterator::count)
}

/// Closes both sessions one after the other, and checks that each removes only its own folder and processes.
async fn leave(gateway: &Gateway, clients: [Client; 2]) {
    let [ann, ben] = clients;
    assert_eq!(folders(gateway), 2, "one each");
    let before = users(gateway).len();
    assert_eq!(ann.delete(gateway).await, 200);
    until("end of hers", || folders(gateway) == 1 && users(gateway).len() < before).await;
    assert!(!users(gateway).is_empty(), "his are there");
    assert_eq!(ben.delete(gateway).await, 200);
    until("end of all", || folders(gateway) == 0 && users(gateway).is_empty()).await;
}

/// Design §4.5, R064: two sessions have two browsers, each with its own page. Both browsers end with their sessions.
#[tokio::test]
async fn browsers_are_isolated() {
    if peers::are_left_out() {
        return;
    }
    let temporary = tempfile::Builder::new().prefix("pw").tempdir().unwrap();
    let (name, entry) = recipe::browser(temporary.path());
    let gateway = Gateway::start(json!({ (name.clone()): entry })).await;
    let clients = [gateway.client(&name).await, gateway.client(&name).await];
    let pages = ["apples", "bananas"];
    for (client, page) in clients.iter().zip(pages) {
        let url = format!("data:text/html,<title>{page}</title><h1>{page}</h1>");
        text(&gateway, client, "browser_navigate", json!({ "url": url })).await;
    }
    for (client, page) in clients.iter().zip(pages) {
        let seen = text(&gateway, client, "browser_snapshot", json!({})).await;
        assert!(seen.contains(&format!("heading \"{page}\"")), "{seen}");
    }
    assert!(users(&gateway).len() > 6, "a browser is several processes");
    leave(&gateway, clients).await;
}

/// Design §4.5: two sessions have two separate memories.
#[tokio::test]
async fn memories_are_isolated() {
    if peers::are_left_out() {
        return;
    }
    let (name, entry) = recipe::read("server-memory");
    let gateway = Gateway::start(json!({ (name.clone()): entry })).await;
    let clients = [gateway.client(&name).await, gateway.client(&name).await];
    for (client, who) in clients.iter().zip(["Ann", "Ben"]) {
        let entity = json!({ "name": who, "entityType": "person", "observations": ["tea"] });
        text(&gateway, client, "create_entities", json!({ "entities": [entity] })).await;
    }
    for (client, who) in clients.iter().zip(["Ann", "Ben"]) {
        let graph = text(&gateway, client, "read_graph", json!({})).await;
        let graph: Value = serde_json::from_str(&graph).unwrap();
        let known: Vec<&Value> =
            graph["entities"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
        assert_eq!(known, [who]);
    }
    leave(&gateway, clients).await;
}

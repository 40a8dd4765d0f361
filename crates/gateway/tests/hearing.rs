//! What clients asked to hear reaches them, whichever link they get.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod world;

use serde_json::{Value, json};
use stayput_testkit::{mcp::Events, processes};
use world::{Client, Gateway, LONG, gone, mark, stdio};

const RESOURCE: &str = "test://count";

/// What is heard of a change. The server tells of its list first, always, so the list of the next change is
/// where the first one ends.
async fn heard(gateway: &Gateway, by: &Client, events: &mut Events) -> Vec<String> {
    by.text(gateway, "notify").await;
    by.text(gateway, "notify").await;
    let mut all: Vec<String> = Vec::new();
    while all.iter().filter(|it| it.ends_with("/list_changed")).count() < 2 {
        let message = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
        all.push(message["method"].as_str().unwrap().to_owned());
    }
    all
}

const UPDATED: &str = "notifications/resources/updated";

async fn hears_updates(gateway: &Gateway, client: &Client, events: &mut Events) -> bool {
    heard(gateway, client, events).await.iter().any(|it| it == UPDATED)
}

/// Goes on after a loss, which is heard, too: a warning is the last of it.
async fn after_the_loss(gateway: &Gateway, client: &Client, events: &mut Events) {
    let told = client.call(gateway, "count", json!({})).await;
    assert_eq!(told["result"]["isError"], true, "{told}");
    loop {
        let message = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
        if message["method"] == "notifications/message" {
            break;
        }
    }
    assert_eq!(client.text(gateway, "count").await, "1");
}

/// E32: a client that listens hears a link that another session opened, once it uses it.
#[tokio::test]
async fn who_listens_hears_a_link_that_others_opened() {
    let mark = mark("ear");
    let mut server = stdio(&mark, &[]);
    server["stayput"] = json!({ "isolation": "shared" });
    let gateway = Gateway::start(json!({ "test": server })).await;
    let (ann, bob) = (gateway.client("test").await, gateway.client("test").await);
    let mut ear = bob.get(&gateway, None).await.events();
    ear.next().await.unwrap();
    assert_eq!(ann.text(&gateway, "count").await, "1");
    assert_eq!(bob.text(&gateway, "count").await, "2");
    heard(&gateway, &ann, &mut ear).await;
}

/// What is subscribed to is subscribed to again, at a new process and by a new gateway; what was
/// unsubscribed from is not.
#[tokio::test]
async fn subscriptions_outlive_the_process_they_were_made_with() {
    let mark = mark("subscribed");
    let mut gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    let params = json!({ "uri": RESOURCE });
    let ask = async |gateway: &Gateway, method: &str| -> Value {
        client.request(gateway, method, params.clone()).await["result"].clone()
    };
    assert_eq!(ask(&gateway, "resources/subscribe").await, json!({}));
    let mut ear = client.get(&gateway, None).await.events();
    assert!(hears_updates(&gateway, &client, &mut ear).await);
    for pid in processes::with_token(&mark) {
        std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    }
    gone(&mark).await;
    after_the_loss(&gateway, &client, &mut ear).await;
    assert!(hears_updates(&gateway, &client, &mut ear).await);
    gateway.kill();
    gone(&mark).await;
    gateway.restart().await;
    let mut ear = client.get(&gateway, None).await.events();
    after_the_loss(&gateway, &client, &mut ear).await;
    assert!(hears_updates(&gateway, &client, &mut ear).await);
    assert_eq!(ask(&gateway, "resources/unsubscribe").await, json!({}));
    gateway.kill();
    gone(&mark).await;
    gateway.restart().await;
    let mut ear = client.get(&gateway, None).await.events();
    after_the_loss(&gateway, &client, &mut ear).await;
    assert!(!hears_updates(&gateway, &client, &mut ear).await);
}

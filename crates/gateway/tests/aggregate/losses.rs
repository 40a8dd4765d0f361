//! Losses of state belong to the server that lost it.

use std::time::Duration;

use serde_json::{Value, json};
use stayput_testkit::{mcp::TestServer, processes};

use crate::{
    ALL,
    support::{Gateway, LONG, gone, mark, stdio},
};

fn is_told(answer: &Value, server: &str) -> bool {
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    answer["result"]["isError"] == true
        && answer["result"]["_meta"]["dev.stayput/state"]["state"] == "lost"
        && text.contains(&format!("`{server}`"))
}

/// Invariant 3: a loss on one server is reported there, and refuses no call to another server.
#[tokio::test]
async fn loss_on_one_server_refuses_no_call_to_another() {
    let (one, two) = (mark("all-loss-one"), mark("all-loss-two"));
    let servers = json!({ "one": stdio(&one, &[]), "two": stdio(&two, &[]) });
    let gateway = Gateway::start(servers).await;
    let client = gateway.client(ALL).await;
    assert_eq!(client.text(&gateway, "one__count").await, "1");
    assert_eq!(client.text(&gateway, "two__count").await, "1");
    for pid in processes::with_token(&one) {
        let kill = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
        assert!(kill.unwrap().success());
    }
    gone(&one).await;
    // This request starts a new process and reports no loss. So the loss exists and is unacknowledged.
    let ask = json!({ "ref": { "type": "ref/prompt", "name": "one__greet" },
        "argument": { "name": "name", "value": "x" } });
    let end = tokio::time::Instant::now() + LONG;
    loop {
        let completed = client.request(&gateway, "completion/complete", ask.clone()).await;
        if completed["result"].is_object() {
            break;
        }
        assert!(tokio::time::Instant::now() < end, "{completed}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(client.text(&gateway, "two__count").await, "2");
    let told = client.call(&gateway, "one__count", json!({})).await;
    assert!(is_told(&told, "one"), "{told}");
    assert_eq!(client.text(&gateway, "two__count").await, "3");
    assert_eq!(client.text(&gateway, "one__count").await, "1");
    assert_eq!(client.text(&gateway, "two__count").await, "4");
}

/// Invariants 3 and 5, E07: after `kill -9` the new gateway knows the connection to all servers. It reports the loss
/// of each child separately. The session of the HTTP server continues.
#[tokio::test]
async fn killed_gateway_reports_the_loss_of_each_child() {
    let mark = mark("all-killed");
    let web = TestServer::http(&["--era", "legacy"]).await;
    let servers = json!({
        "one": stdio(&mark, &[]), "two": stdio(&mark, &[]), "web": { "url": web.url() },
    });
    let mut gateway = Gateway::start(servers).await;
    let client = gateway.client(ALL).await;
    for tool in ["one__count", "two__count", "web__count"] {
        assert_eq!(client.text(&gateway, tool).await, "1");
    }
    gateway.kill();
    gone(&mark).await;
    gateway.restart().await;
    assert_eq!(client.text(&gateway, "web__count").await, "2");
    let told = client.call(&gateway, "one__count", json!({})).await;
    assert!(is_told(&told, "one"), "{told}");
    assert_eq!(client.text(&gateway, "one__count").await, "1");
    let told = client.call(&gateway, "two__count", json!({})).await;
    assert!(is_told(&told, "two"), "{told}");
    assert_eq!(client.text(&gateway, "two__count").await, "1");
    assert_eq!(client.text(&gateway, "web__count").await, "3");
}

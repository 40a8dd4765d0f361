//! Broken servers: the others keep working, and the broken one is reported.

use std::time::Duration;

use serde_json::json;
use stayput_testkit::mcp::TestServer;
use tokio::time::Instant;

use crate::{
    ALL, notes,
    support::{Gateway, LONG, mark, stdio},
    tools,
};

/// Returns the URL of a port without a listener.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/mcp", listener.local_addr().unwrap())
}

/// R029, R137: working servers are available at once. Each broken one is named with its reason, and its calls fail
/// with that reason.
#[tokio::test]
async fn broken_server_does_not_affect_the_others() {
    let mark = mark("all-broken");
    let gateway = Gateway::start(json!({
        "good": notes(),
        "missing": { "command": "stayput-no-such-program" },
        "dead": { "url": nowhere() },
        "bad": { "command": "sh", "args": ["-c", "echo hush-hush >&2; exit 3"] },
        "silent": stdio(&mark, &["--silent"]),
    }))
    .await;
    let begun = Instant::now();
    let client = gateway.client(ALL).await;
    let greeted = begun.elapsed();
    // Starting and initializing the silent server alone may take a minute.
    assert!(greeted < Duration::from_secs(25), "{greeted:?}");
    let said = client.greeting["result"]["instructions"].as_str().unwrap();
    for reason in ["its command was not found", "`dead` cannot be reached"] {
        assert!(said.contains(reason), "{reason}: {said}");
    }
    assert!(
        said.contains("`bad` exited with code 3") && said.contains("`silent` has not"),
        "{said}"
    );
    assert!(!said.contains("hush"), "what a child wrote is not for models: {said}");
    let begun = Instant::now();
    let names = tools(&client, &gateway).await;
    assert!(names.iter().all(|name| name.starts_with("good__")) && names.len() == 4, "{names:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(client.text(&gateway, "good__count").await, "1");
    for (tool, reason) in [
        ("missing__x", "its command was not found"),
        ("dead__x", "cannot be reached"),
        ("bad__x", "exited with code 3"),
    ] {
        let failed = client.call(&gateway, tool, json!({})).await;
        assert_eq!(failed["result"]["isError"], true, "{failed}");
        let words = failed["result"]["content"][0]["text"].as_str().unwrap();
        assert!(words.contains(reason) && !words.contains("hush"), "{words}");
    }
    assert_eq!(client.text(&gateway, "good__count").await, "2");
}

/// A server that returns is listed again, and listening clients get a notification.
#[tokio::test]
async fn returning_server_is_listed_again() {
    let mut server = TestServer::http(&["--era", "legacy"]).await;
    server.kill();
    let gateway = Gateway::start(json!({ "good": notes(), "late": { "url": server.url() } })).await;
    let client = gateway.client(ALL).await;
    let mut events = client.get(&gateway, None).await.events();
    let late = |names: &[String]| names.contains(&"late__count".to_owned());
    assert!(!late(&tools(&client, &gateway).await));
    server.restart().await;
    let end = Instant::now() + LONG;
    while !late(&tools(&client, &gateway).await) {
        assert!(Instant::now() < end, "it does not come back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let heard = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
    assert!(heard["method"].as_str().unwrap().ends_with("/list_changed"), "{heard}");
    assert_eq!(client.text(&gateway, "late__count").await, "1");
}

/// A server that starts slowly does not delay the others. Listening clients get a notification when it is ready.
#[tokio::test]
async fn slow_server_is_listed_when_it_is_ready() {
    let mark = mark("all-slow");
    let slow = stdio(&mark, &["--startup-ms", "7000"]);
    let gateway = Gateway::start(json!({ "good": notes(), "slow": slow })).await;
    let client = gateway.client(ALL).await;
    let declared = &client.greeting["result"]["capabilities"];
    assert_eq!(declared["tools"]["listChanged"], true, "{declared}");
    assert!(declared["prompts"].is_object(), "{declared}");
    let mut events = client.get(&gateway, None).await.events();
    let names = tools(&client, &gateway).await;
    assert!(names.iter().all(|name| name.starts_with("good__")), "{names:?}");
    let heard = tokio::time::timeout(LONG * 2, events.message()).await.unwrap().unwrap();
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    assert!(tools(&client, &gateway).await.contains(&"slow__count".to_owned()));
}

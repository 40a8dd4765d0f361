//! `subscriptions/listen` on servers that support it.

use serde_json::{Value, json};
use stayput_testkit::mcp::TestServer;

use crate::{
    kit::{Modern, modern_stdio, request},
    support::{Gateway, mark},
};

const TAG: &str = "io.modelcontextprotocol/subscriptionId";

/// Notifications carry the client's id, several clients listen at once, and closing a stream ends the subscription
/// upstream, too.
#[tokio::test]
async fn clients_get_the_notifications_that_they_subscribed_to() {
    let server = TestServer::http(&["--era", "modern"]).await;
    let mark = mark("listen");
    let servers = json!({ "http": { "url": server.url() }, "stdio": modern_stdio(&mark, &[]) });
    let gateway = Gateway::start(servers).await;
    for name in ["http", "stdio"] {
        let client = Modern::of(&gateway, name);
        let mut streams = Vec::new();
        for id in [json!("l/1"), json!(7)] {
            let wanted = json!({ "toolsListChanged": true, "promptsListChanged": true,
                "resourceSubscriptions": ["test://count"] });
            let listen = request(&id, "subscriptions/listen", json!({ "notifications": wanted }));
            let answer = client.send(&listen).await;
            assert_eq!(answer.header("content-type"), "text/event-stream");
            assert_eq!(answer.header("x-accel-buffering"), "no");
            let mut events = answer.events();
            let first = events.message().await.unwrap();
            assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
            assert_eq!(first["params"]["_meta"][TAG], id);
            assert!(first["params"]["notifications"]["promptsListChanged"].is_null(), "{first}");
            streams.push((id, events));
        }
        client.call("notify", json!({})).await;
        for (id, events) in &mut streams {
            let told = events.message().await.unwrap();
            assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
            assert_eq!(told["params"]["_meta"][TAG], *id);
            let told = events.message().await.unwrap();
            assert_eq!(told["method"], "notifications/resources/updated", "{told}");
            assert_eq!(told["params"]["_meta"][TAG], *id);
        }
        drop(streams.pop());
        client.until("/cancels", 1).await;
        // The other client still gets notifications.
        client.call("notify", json!({})).await;
        let told = streams[0].1.message().await.unwrap();
        assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
        drop(streams);
        client.until("/cancels", 2).await;
    }
}

/// Changed lists are fetched once and cached again.
#[tokio::test]
async fn changed_lists_are_fetched_again() {
    let server = TestServer::http(&["--era", "modern"]).await;
    let gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let client = Modern::of(&gateway, "test");
    let asked = async || {
        let stats = server.stats().await;
        stats["methods"]["tools/list"].as_u64().unwrap_or(0)
    };
    client.result("tools/list", json!({})).await;
    let before = asked().await;
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    let mut events = client.ask("subscriptions/listen", listen).await.events();
    events.message().await.unwrap();
    client.result("tools/list", json!({})).await;
    assert_eq!(asked().await, before);
    client.call("notify", json!({})).await;
    let told = events.message().await.unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    let lists = (0..5).map(|_| client.result("tools/list", json!({})));
    let lists: Vec<Value> = futures_util::future::join_all(lists).await;
    assert!(lists.iter().all(|list| list["tools"].as_array().is_some_and(|it| it.len() == 21)));
    assert_eq!(asked().await, before + 1);
}

/// A subscription that the server ends is ended under the client's id.
#[tokio::test]
async fn end_of_a_subscription_has_the_client_s_id() {
    let server = TestServer::http(&["--era", "modern"]).await;
    let gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let client = Modern::of(&gateway, "test");
    client.text("count").await;
    let end = format!(
        r#"{{"jsonrpc":"2.0","id":$id,"result":{{"resultType":"complete","_meta":{{"{TAG}":$id}}}}}}"#
    );
    let headers = [["content-type", "application/json"]];
    server
        .script(&json!([{ "on": "subscriptions/listen", "do": { "status":
            { "code": 200, "body": end, "headers": headers } } }]))
        .await;
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    let end = client.ask("subscriptions/listen", listen).await.message().await;
    assert_eq!((&end["id"], &end["result"]["_meta"][TAG]), (&json!("q/1"), &json!("q/1")), "{end}");
}

/// A stopping gateway answers open `subscriptions/listen` requests, and does not wait for their clients.
#[tokio::test]
async fn open_subscriptions_are_answered_at_stop() {
    let server = TestServer::http(&["--era", "modern"]).await;
    let mut gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let client = Modern::of(&gateway, "test");
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    let mut events = client.ask("subscriptions/listen", listen).await.events();
    events.message().await.unwrap();
    let stopped = tokio::task::spawn_blocking(move || gateway.stop());
    let end = events.message().await.unwrap();
    assert_eq!((&end["id"], &end["result"]["_meta"][TAG]), (&json!("q/1"), &json!("q/1")), "{end}");
    assert!(events.message().await.is_none());
    assert!(stopped.await.unwrap().success());
}

//! Resources, whose URIs stay unchanged.

use serde_json::json;
use stayput_testkit::{mcp::TestServer, processes};

use crate::{
    ALL, called, notes,
    support::{Gateway, mark, stdio},
};

/// A URI is routed to the server that lists it or has a template for it.
#[tokio::test]
async fn uri_is_routed_to_the_server_that_lists_it() {
    let mark = mark("all-uris");
    let suite = TestServer::conformance().await;
    let servers = json!({
        "a": notes(), "b": { "url": suite.url() }, "c": stdio(&mark, &[]), "d": stdio(&mark, &[]),
    });
    let gateway = Gateway::start(servers).await;
    let client = gateway.client(ALL).await;
    let listed = client.request(&gateway, "resources/list", json!({})).await;
    let uris = called(&listed, "resources", "uri");
    assert!(uris.contains(&"test://static-text".to_owned()), "{uris:?}");
    // Two servers list it; the first one serves it.
    assert_eq!(uris.iter().filter(|uri| *uri == "test://count").count(), 1, "{uris:?}");
    let listed = client.request(&gateway, "resources/templates/list", json!({})).await;
    let templates = called(&listed, "resourceTemplates", "uriTemplate");
    assert_eq!(templates, ["test://template/{id}/data"]);
    let read =
        async |uri: &str| client.request(&gateway, "resources/read", json!({ "uri": uri })).await;
    let text = read("test://static-text").await["result"]["contents"][0]["text"].clone();
    assert!(text.as_str().unwrap().contains("static text"), "{text}");
    let made = read("test://template/7/data").await;
    assert!(made["result"].to_string().contains("Data for ID: 7"), "{made}");
    assert_eq!(processes::with_token(&mark).len(), 0);
    client.text(&gateway, "c__count").await;
    client.text(&gateway, "d__count").await;
    client.text(&gateway, "c__count").await;
    let count = read("test://count").await;
    assert_eq!(count["result"]["contents"][0]["text"], "2", "{count}");
    for unknown in ["test://other", "test://template/7/8/data", "file:///etc/passwd"] {
        let refused = read(unknown).await;
        assert_eq!(refused["error"]["code"], -32002, "{refused}");
        assert_eq!(refused["error"]["data"]["uri"], unknown);
    }
}

/// If only one server has resources, it gets the requests for unlisted URIs, too.
#[tokio::test]
async fn only_server_with_resources_gets_unlisted_uris() {
    let mark = mark("all-only");
    let gateway = Gateway::start(json!({ "a": notes(), "b": stdio(&mark, &[]) })).await;
    let client = gateway.client(ALL).await;
    let read = json!({ "uri": "test://unlisted" });
    let answer = client.request(&gateway, "resources/read", read).await;
    assert_eq!(answer["error"]["message"], "there is no such resource", "the server's own words");
}

/// `resources/subscribe` and `resources/unsubscribe` reach the server.
#[tokio::test]
async fn resource_subscription_reaches_the_server() {
    let mark = mark("all-watched");
    let gateway = Gateway::start(json!({ "a": notes(), "b": stdio(&mark, &[]) })).await;
    let client = gateway.client(ALL).await;
    let mut events = client.get(&gateway, None).await.events();
    let uri = json!({ "uri": "test://count" });
    let done = client.request(&gateway, "resources/subscribe", uri.clone()).await;
    assert_eq!(done["result"], json!({}), "{done}");
    client.text(&gateway, "b__notify").await;
    let mut heard = Vec::new();
    while heard.len() < 2 {
        let message = tokio::time::timeout(crate::support::LONG, events.message()).await;
        heard.push(message.unwrap().unwrap()["method"].as_str().unwrap().to_owned());
    }
    heard.sort();
    assert_eq!(heard, ["notifications/resources/updated", "notifications/tools/list_changed"]);
    let done = client.request(&gateway, "resources/unsubscribe", uri).await;
    assert_eq!(done["result"], json!({}), "{done}");
    client.text(&gateway, "b__notify").await;
    client.text(&gateway, "b__notify").await;
    for _ in 0..2 {
        let message = tokio::time::timeout(crate::support::LONG, events.message()).await;
        assert_eq!(message.unwrap().unwrap()["method"], "notifications/tools/list_changed");
    }
}

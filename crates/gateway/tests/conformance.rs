//! The official suite through the gateway.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod world;

use serde_json::json;
use stayput_testkit::{mcp::TestServer, peers};
use world::Gateway;

/// Through the gateway a server is as good as without it.
#[tokio::test]
async fn a_server_behind_the_gateway_conforms_to_2025_11_25() {
    if peers::are_left_out() {
        return;
    }
    let server = TestServer::conformance().await;
    let gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let url = format!("{}/mcp/test", gateway.url);
    let judged = tokio::task::spawn_blocking(move || peers::judge(&url, "2025-11-25"));
    let judged = judged.await.unwrap();
    assert_eq!(judged.failed, 0, "{}", judged.report);
    assert!(judged.passed >= 80, "{}", judged.report);
}

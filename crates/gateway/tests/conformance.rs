//! The official suite through the gateway.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod world;

use serde_json::{Value, json};
use stayput_testkit::{mcp::TestServer, peers, program};
use world::Gateway;

/// The verdict of the suite on what is behind the gateway.
async fn judge(server: Value, revision: &'static str) -> peers::Verdict {
    let gateway = Gateway::start(json!({ "test": server })).await;
    let url = format!("{}/mcp/test", gateway.url);
    tokio::task::spawn_blocking(move || peers::judge(&url, revision)).await.unwrap()
}

/// Through the gateway a server is as good as without it.
#[tokio::test]
async fn a_server_behind_the_gateway_conforms_to_2025_11_25() {
    if peers::are_left_out() {
        return;
    }
    let server = TestServer::conformance().await;
    let judged = judge(json!({ "url": server.url() }), "2025-11-25").await;
    assert_eq!(judged.failed, 0, "{}", judged.report);
    assert!(judged.passed >= 80, "{}", judged.report);
}

/// What the same server has without the gateway, but for one check that is made only where lists come as
/// streams: here they come as JSON.
const MODERN: (u32, u32) = (196, 0);

#[tokio::test]
async fn a_modern_server_behind_the_gateway_conforms_to_2026_07_28() {
    if peers::are_left_out() {
        return;
    }
    let server = TestServer::conformance().await;
    let judged =
        judge(json!({ "url": server.url(), "stayput": { "era": "modern" } }), "2026-07-28");
    let judged = judged.await;
    assert_eq!((judged.passed, judged.failed), MODERN, "{}", judged.report);
}

#[tokio::test]
async fn a_modern_process_behind_the_gateway_conforms_to_2026_07_28() {
    if peers::are_left_out() {
        return;
    }
    let command = program("stayput-conformance-server");
    let server = json!({ "command": command, "args": ["--stdio"], "stayput": { "era": "modern" } });
    let judged = judge(server, "2026-07-28").await;
    assert_eq!((judged.passed, judged.failed), MODERN, "{}", judged.report);
}

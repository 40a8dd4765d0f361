//! The official conformance suite gives the same results with and without the layer.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use axum::Router;
use stayput_server::ServerSessions;
use stayput_testkit::{conformance, mcp::TestServer, peers};
use support::listen;

async fn assert_same_result_with_layer(revision: &'static str) {
    if peers::are_left_out() {
        return;
    }
    let plain = TestServer::conformance().await;
    let sessions = ServerSessions::in_memory();
    let app = Router::new().route_service("/mcp", conformance::service()).layer(sessions.layer());
    let layered = listen(app).await;
    let judge = |url: String| tokio::task::spawn_blocking(move || peers::judge(&url, revision));
    let direct = judge(plain.url().to_owned());
    let through = judge(layered).await.unwrap();
    let direct = direct.await.unwrap();
    assert_eq!((direct.failed, through.failed), (0, 0), "{}", through.report);
    assert!(direct.passed > 50, "{}", direct.report);
    assert_eq!(through.checks, direct.checks, "{}", through.report);
}

/// R016: legacy clients see no difference.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layer_conforms_to_2025_11_25() {
    assert_same_result_with_layer("2025-11-25").await;
}

/// R016: modern clients see no difference.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layer_conforms_to_2026_07_28() {
    assert_same_result_with_layer("2026-07-28").await;
}

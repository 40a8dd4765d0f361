//! The official suite against the server of the kit.
#![cfg(feature = "conformance")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use stayput_testkit::{mcp::TestServer, peers};

async fn is_passed(revision: &'static str, checks: u32) {
    if peers::are_left_out() {
        return;
    }
    let server = TestServer::conformance().await;
    let url = server.url().to_owned();
    let verdict = tokio::task::spawn_blocking(move || peers::judge(&url, revision)).await.unwrap();
    assert_eq!((verdict.passed, verdict.failed), (checks, 0), "{}", verdict.report);
}

#[tokio::test]
async fn the_suite_of_the_legacy_era_is_passed() {
    is_passed("2025-11-25", 83).await;
}

#[tokio::test]
async fn the_suite_of_the_modern_era_is_passed() {
    is_passed("2026-07-28", 197).await;
}

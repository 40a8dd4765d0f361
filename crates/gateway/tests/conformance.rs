//! Official conformance suite through the gateway: the results are the same as without the gateway.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::{Value, json};
use stayput_testkit::{
    mcp::TestServer,
    peers::{self, Verdict},
    program,
};
use support::{Gateway, gone, mark};

/// Revision of the protocol, and the expected differences through the gateway.
struct Suite {
    revision: &'static str,
    /// Era that the gateway uses towards the server.
    era: &'static str,
    /// Checks that exist only without the gateway.
    unlike: &'static [&'static str],
}

const LEGACY: Suite = Suite {
    revision: "2025-11-25",
    era: "legacy",
    // This check looks at lists on SSE streams, where a server may choose. The gateway answers lists from its cache as
    // plain JSON.
    unlike: &["server-sse-multiple-streams/server-sse-streams-functional"],
};

const MODERN: Suite = Suite {
    revision: "2026-07-28",
    era: "modern",
    unlike: &["server-sse-multiple-streams/server-sse-streams-functional"],
};

/// Runs the suite against the server alone and behind the gateway, where `entry` configures it.
///
/// For some notifications the suite waits for a fixed time, and warns if none came by then. On a busy machine it may
/// warn in either run. Then both runs are repeated one after the other.
async fn is_as_good_as_direct(suite: &Suite, server: &TestServer, entry: Value) {
    let gateway = Gateway::start(json!({ "test": entry })).await;
    let judge = |url: String| {
        let revision = suite.revision;
        tokio::task::spawn_blocking(move || peers::judge(&url, revision))
    };
    let (alone, behind) = (server.url().to_owned(), format!("{}/mcp/test", gateway.url));
    let direct = judge(alone.clone());
    let through = judge(behind.clone()).await.unwrap();
    let direct = direct.await.unwrap();
    if compared(suite, &through, direct) {
        return;
    }
    let through = judge(behind).await.unwrap();
    let direct = judge(alone).await.unwrap();
    assert!(compared(suite, &through, direct), "{}", through.report);
}

/// Returns whether both runs have the same results. A failed check panics, because a repetition would not fix it.
fn compared(suite: &Suite, through: &Verdict, mut direct: Verdict) -> bool {
    assert_eq!((direct.failed, through.failed), (0, 0), "{}", through.report);
    assert!(direct.passed > 50, "{}", direct.report);
    for check in suite.unlike {
        assert!(direct.checks.remove(*check).is_some(), "{check} is alike");
    }
    assert!(through.checks.keys().eq(direct.checks.keys()), "{}", through.report);
    through.checks == direct.checks
}

/// Runs the suite with the server behind HTTP.
async fn over_http(suite: &Suite) {
    if peers::are_left_out() {
        return;
    }
    let server = TestServer::conformance().await;
    let entry = json!({ "url": server.url(), "stayput": { "era": suite.era } });
    is_as_good_as_direct(suite, &server, entry).await;
}

/// Runs the suite with a child process for each session.
async fn over_stdio(suite: &Suite) {
    if peers::are_left_out() {
        return;
    }
    let mark = mark("conformance");
    let server = TestServer::conformance().await;
    let entry = json!({
        "command": program("stayput-conformance-server"),
        "args": ["stdio", mark],
        "stayput": { "era": suite.era },
    });
    is_as_good_as_direct(suite, &server, entry).await;
    gone(&mark).await;
}

/// R016: a server behind HTTP has the same results as without the gateway.
#[tokio::test]
async fn http_server_conforms_to_2025_11_25() {
    over_http(&LEGACY).await;
}

/// R016: a child process has the same results, too.
#[tokio::test]
async fn child_process_conforms_to_2025_11_25() {
    over_stdio(&LEGACY).await;
}

/// R016: a modern server, which has no sessions, is passed through unchanged.
#[tokio::test]
async fn http_server_conforms_to_2026_07_28() {
    over_http(&MODERN).await;
}

/// R016: a modern child process is passed through unchanged, too.
#[tokio::test]
async fn child_process_conforms_to_2026_07_28() {
    over_stdio(&MODERN).await;
}

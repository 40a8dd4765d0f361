//! The official suite through the gateway: it says of a server what it says without the gateway.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod world;

use serde_json::{Value, json};
use stayput_testkit::{
    mcp::TestServer,
    peers::{self, Verdict},
    program,
};
use world::{Gateway, gone, mark};

/// A revision of the protocol, and what the suite says otherwise through the gateway.
struct Suite {
    revision: &'static str,
    /// How the server is spoken to.
    era: &'static str,
    /// Checks that are there only without the gateway.
    unlike: &'static [&'static str],
}

const LEGACY: Suite = Suite {
    revision: "2025-11-25",
    era: "legacy",
    // It looks at lists that come on streams, where a server may choose: the gateway knows them, and
    // says them at once.
    unlike: &["server-sse-multiple-streams/server-sse-streams-functional"],
};

const MODERN: Suite = Suite {
    revision: "2026-07-28",
    era: "modern",
    unlike: &["server-sse-multiple-streams/server-sse-streams-functional"],
};

/// Judges the server alone and behind the gateway, where `entry` configures it.
///
/// For some notifications the suite waits for a fixed time, and warns if none came by then. On a busy machine
/// it may so warn of either; then both are judged once more, one after the other.
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

/// Whether both are judged alike. A failure is none that time could mend.
fn compared(suite: &Suite, through: &Verdict, mut direct: Verdict) -> bool {
    assert_eq!((direct.failed, through.failed), (0, 0), "{}", through.report);
    assert!(direct.passed > 50, "{}", direct.report);
    for check in suite.unlike {
        assert!(direct.checks.remove(*check).is_some(), "{check} is alike");
    }
    assert!(through.checks.keys().eq(direct.checks.keys()), "{}", through.report);
    through.checks == direct.checks
}

/// With the server behind HTTP.
async fn over_http(suite: &Suite) {
    if peers::are_left_out() {
        return;
    }
    let server = TestServer::conformance().await;
    let entry = json!({ "url": server.url(), "stayput": { "era": suite.era } });
    is_as_good_as_direct(suite, &server, entry).await;
}

/// With a child process for each session of the suite.
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

/// R016: a server behind HTTP is as good as without the gateway.
#[tokio::test]
async fn a_server_behind_http_conforms_to_2025_11_25() {
    over_http(&LEGACY).await;
}

/// R016: and so is one that is a child process.
#[tokio::test]
async fn a_child_process_conforms_to_2025_11_25() {
    over_stdio(&LEGACY).await;
}

/// R016: a modern server, which keeps no sessions, passes through as it is.
#[tokio::test]
async fn a_server_behind_http_conforms_to_2026_07_28() {
    over_http(&MODERN).await;
}

/// R016: and so does one that is a child process.
#[tokio::test]
async fn a_child_process_conforms_to_2026_07_28() {
    over_stdio(&MODERN).await;
}

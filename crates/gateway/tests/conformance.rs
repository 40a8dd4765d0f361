//! Official conformance suite through the gateway: the results are the same as without the gateway.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::json;
use stayput_testkit::{
    mcp::TestServer,
    peers::{self, Verdict},
    program,
};
use support::{Gateway, gone, mark};

/// Revision of the protocol, with the expected results.
struct Suite {
    revision: &'static str,
    /// Checks that pass without the gateway.
    direct: u32,
    /// Checks that pass through the gateway.
    through: u32,
    /// Checks that exist only without the gateway.
    unlike: &'static [&'static str],
}

/// Check that looks at lists on SSE streams, where a server may choose. The gateway answers lists from its cache as
/// plain JSON, so the check has nothing to look at.
const LISTS_ON_STREAMS: &str = "server-sse-multiple-streams/server-sse-streams-functional";

const LEGACY: Suite =
    Suite { revision: "2025-11-25", direct: 83, through: 82, unlike: &[LISTS_ON_STREAMS] };

const MODERN: Suite =
    Suite { revision: "2026-07-28", direct: 197, through: 196, unlike: &[LISTS_ON_STREAMS] };

/// Transport of the server behind the gateway.
#[derive(Clone, Copy, PartialEq)]
enum Transport {
    Http,
    /// A child process for each session.
    Stdio,
}

/// Runs the suite against the server alone and behind the gateway at `path`, where the server has this `era`.
///
/// For some notifications the suite waits for a fixed time, and warns if none came by then. On a busy machine it may
/// warn in either run. Then both runs are repeated one after the other.
async fn is_as_good_as_direct(suite: &Suite, transport: Transport, path: &str, era: &str) {
    if peers::are_left_out() {
        return;
    }
    let mark = mark("conformance");
    let server = TestServer::conformance().await;
    let mut entry = match transport {
        Transport::Http => json!({ "url": server.url() }),
        Transport::Stdio => {
            json!({ "command": program("stayput-conformance-server"), "args": ["stdio", mark] })
        }
    };
    entry["stayput"] = json!({ "era": era });
    let gateway = Gateway::start(json!({ "test": entry })).await;
    let judge = |url: String| {
        let revision = suite.revision;
        tokio::task::spawn_blocking(move || peers::judge(&url, revision))
    };
    let (alone, behind) = (server.url().to_owned(), format!("{}{path}", gateway.url));
    let direct = judge(alone.clone());
    let through = judge(behind.clone()).await.unwrap();
    let direct = direct.await.unwrap();
    if !is_alike(suite, &through, direct) {
        let through = judge(behind).await.unwrap();
        let direct = judge(alone).await.unwrap();
        assert!(is_alike(suite, &through, direct), "{}", through.report);
    }
    drop(gateway);
    gone(&mark).await;
}

/// Returns whether both runs have the same results. A failed check panics, because a repetition would not fix it.
fn is_alike(suite: &Suite, through: &Verdict, mut direct: Verdict) -> bool {
    assert_eq!((direct.failed, through.failed), (0, 0), "{}", through.report);
    for check in suite.unlike {
        assert!(direct.checks.remove(*check).is_some(), "{check} is alike");
    }
    assert!(through.checks.keys().eq(direct.checks.keys()), "{}", through.report);
    (direct.passed, through.passed) == (suite.direct, suite.through)
        && through.checks == direct.checks
}

/// R016: a URL server has the same results as without the gateway, and without a name of a session.
#[tokio::test]
async fn http_server_conforms_to_2025_11_25() {
    is_as_good_as_direct(&LEGACY, Transport::Http, "/mcp/test", "auto").await;
}

/// R016: so it has where the URL names the session.
#[tokio::test]
async fn http_server_with_a_session_conforms_to_2025_11_25() {
    is_as_good_as_direct(&LEGACY, Transport::Http, "/mcp/test/~chat", "auto").await;
}

/// R016: a child process has the same results, too.
#[tokio::test]
async fn child_process_conforms_to_2025_11_25() {
    is_as_good_as_direct(&LEGACY, Transport::Stdio, "/mcp/test/~chat", "auto").await;
}

/// R016: modern clients are passed through to a URL server that speaks both eras.
#[tokio::test]
async fn http_server_conforms_to_2026_07_28() {
    is_as_good_as_direct(&MODERN, Transport::Http, "/mcp/test", "auto").await;
}

/// R016: so they are where the URL names a session, which the server does not need.
#[tokio::test]
async fn http_server_with_a_session_conforms_to_2026_07_28() {
    is_as_good_as_direct(&MODERN, Transport::Http, "/mcp/test/~chat", "auto").await;
}

/// R016: a child process that speaks both eras is one session, and spoken to in the era of its client.
#[tokio::test]
async fn child_process_conforms_to_2026_07_28() {
    is_as_good_as_direct(&MODERN, Transport::Stdio, "/mcp/test/~chat", "auto").await;
}

/// R016: a child process of the modern era only, which all clients share, needs no session.
#[tokio::test]
async fn shared_child_process_conforms_to_2026_07_28() {
    is_as_good_as_direct(&MODERN, Transport::Stdio, "/mcp/test", "modern").await;
}

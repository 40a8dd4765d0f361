//! Official conformance suite through the gateway: the results are the same as without the gateway.
#![allow(
    clippy::unwrap_used,
    clippy::large_enum_variant,
    reason = "a test stops at the first surprise, and there is one front"
)]

#[path = "cluster/replicas.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod replicas;
mod support;

use replicas::{Database, Replicas};
use serde_json::{Value, json};
use stayput_testkit::{
    Balancer,
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

/// Gateways in front of the server.
enum Front {
    One(Gateway),
    /// Three replicas behind a balancer without stickiness.
    Three {
        replicas: Replicas,
        balancer: Balancer,
        _database: Database,
    },
}

impl Front {
    async fn three(servers: &Value, database: Database) -> Self {
        let replicas = Replicas::start(servers, database.url()).await;
        let balancer = replicas.balancer().await;
        Self::Three { replicas, balancer, _database: database }
    }

    fn url(&self) -> String {
        match self {
            Self::One(gateway) => gateway.url.clone(),
            Self::Three { balancer, .. } => balancer.url(),
        }
    }

    /// Checks that every gateway has got a part of the requests.
    fn check_shares(&self) {
        let Self::Three { replicas, balancer, .. } = self else { return };
        for replica in &replicas.all {
            let address = replica.url.trim_start_matches("http://");
            let share = balancer.requests().iter().filter(|it| it.gateway == address).count();
            assert!(share > 10, "{share} requests at {address}");
        }
    }
}

/// Runs the suite through one gateway.
async fn is_as_good_as_direct(suite: &Suite, transport: Transport, path: &str, era: &str) {
    if peers::are_left_out() {
        return;
    }
    let (mark, server) = (mark("conformance"), TestServer::conformance().await);
    let servers = entry(transport, &server, era, &mark);
    let front = Front::One(Gateway::start(servers).await);
    check_suite(suite, &server, front, path).await;
    gone(&mark).await;
}

/// Runs the suite through three replicas.
async fn is_as_good_through_three(suite: &Suite, transport: Transport, database: Database) {
    if peers::are_left_out() {
        return;
    }
    let (mark, server) = (mark("conformance-three"), TestServer::conformance().await);
    let servers = entry(transport, &server, "auto", &mark);
    let front = Front::three(&servers, database).await;
    check_suite(suite, &server, front, "/mcp/test/~chat").await;
    gone(&mark).await;
}

/// Returns the servers of the configuration, where the one of the suite has this `era`.
fn entry(transport: Transport, server: &TestServer, era: &str, mark: &str) -> Value {
    let mut entry = match transport {
        Transport::Http => json!({ "url": server.url() }),
        Transport::Stdio => {
            json!({ "command": program("stayput-conformance-server"), "args": ["stdio", mark] })
        }
    };
    entry["stayput"] = json!({ "era": era });
    json!({ "test": entry })
}

/// Runs the suite against the server alone and behind `front` at `path`.
///
/// For some notifications the suite waits for a fixed time, and warns if none came by then. On a busy machine it may
/// warn in either run. Then both runs are repeated one after the other.
async fn check_suite(suite: &Suite, server: &TestServer, front: Front, path: &str) {
    let judge = |url: String| {
        let revision = suite.revision;
        tokio::task::spawn_blocking(move || peers::judge(&url, revision))
    };
    let (alone, behind) = (server.url().to_owned(), format!("{}{path}", front.url()));
    let direct = judge(alone.clone());
    let through = judge(behind.clone()).await.unwrap();
    let direct = direct.await.unwrap();
    if !is_alike(suite, &through, direct) {
        let through = judge(behind).await.unwrap();
        let direct = judge(alone).await.unwrap();
        assert!(is_alike(suite, &through, direct), "{}", through.report);
    }
    front.check_shares();
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

/// R166: through three replicas on PostgreSQL, a URL server has the same results as through one gateway.
#[tokio::test]
async fn http_server_behind_replicas_conforms_to_2025_11_25() {
    is_as_good_through_three(&LEGACY, Transport::Http, Database::postgres().await).await;
}

/// R166: so it has on Redis, in the modern era.
#[tokio::test]
async fn http_server_behind_replicas_conforms_to_2026_07_28() {
    is_as_good_through_three(&MODERN, Transport::Http, Database::redis().await).await;
}

/// R166: a child process, which one of the replicas has, has the same results, too.
#[tokio::test]
async fn child_process_behind_replicas_conforms_to_2025_11_25() {
    is_as_good_through_three(&LEGACY, Transport::Stdio, Database::redis().await).await;
}

/// R166: so it has in the modern era.
#[tokio::test]
async fn child_process_behind_replicas_conforms_to_2026_07_28() {
    is_as_good_through_three(&MODERN, Transport::Stdio, Database::postgres().await).await;
}

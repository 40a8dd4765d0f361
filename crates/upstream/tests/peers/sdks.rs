//! Counters on third-party SDKs, each in both eras: state, isolation and loss.

use std::{ops::Range, time::Duration};

use serde_json::json;
use stayput_testkit::peers::{self, Peer};
use stayput_upstream::{
    EraChoice, Http, Isolation, LinkOwner, Links, LossReason, Options, Server, Stdio, Timeouts,
};
use stayput_wire::Era;

use crate::{
    kit::{Token, Way, kept, open, tool},
    listening::Listening,
    support::{LONG, close, place, try_call},
};

/// Counts in a session, with a newly opened link each time.
async fn counts(links: &Links, server: &Server, place: &LinkOwner, numbers: Range<u32>) {
    for number in numbers {
        let link = open(links, server, place).await;
        assert_eq!(tool(&link, "count", &json!({})).await, number.to_string());
    }
}

async fn era(links: &Links, server: &Server, place: &LinkOwner) -> Era {
    open(links, server, place).await.initialize_result().era()
}

fn server(stdio: &Stdio, era: EraChoice, isolation: Option<Isolation>) -> Server {
    // Python can start slowly on a busy machine, so a long silence means nothing.
    let timeouts = Timeouts { probe: LONG, ..Timeouts::default() };
    let options = Options { era, isolation, timeouts, ..Options::default() };
    Server::with("counter", stdio.clone(), options).unwrap()
}

/// Over stdio a session has a process and thus its own count.
async fn counts_over_stdio(peer: &Peer, choice: EraChoice) {
    let (links, token) = (Way::Local.links(), Token::new());
    let server = server(&token.stdio(peer, &["stdio"]), choice, None);
    let (ann, ben) = (place(), place());
    assert_eq!(era(&links, &server, &ann).await, Era::Legacy);
    counts(&links, &server, &ann, 1..3).await;
    counts(&links, &server, &ben, 1..2).await;
    counts(&links, &server, &ann, 3..4).await;
    assert_eq!(token.tree().len(), 2);
    for place in [ann, ben] {
        assert!(links.end(place.session).await.is_empty());
    }
    assert_eq!(token.tree(), [0_u32; 0]);
    close(&links).await;
}

/// Modern era, with a process for each session or one for all. `numbers` are the results of two requests of one
/// session and one of another.
async fn counts_over_modern_stdio(peer: &Peer, isolation: Isolation, numbers: [&str; 3]) {
    let (links, token) = (Way::Local.links(), Token::new());
    let stdio = token.stdio(peer, &["stdio"]);
    let choice = match isolation {
        // A shared server that supports both eras is used as modern.
        Isolation::Shared => EraChoice::Auto,
        _ => EraChoice::Modern,
    };
    let server = server(&stdio, choice, Some(isolation));
    let (ann, ben) = (place(), place());
    let mut counted = Vec::new();
    for place in [&ann, &ann, &ben] {
        let link = open(&links, &server, place).await;
        assert_eq!(link.initialize_result().era(), Era::Modern);
        counted.push(tool(&link, "count", &json!({})).await);
    }
    assert_eq!(counted, numbers);
    let processes = if isolation == Isolation::Shared { 1 } else { 2 };
    assert_eq!(token.tree().len(), processes);
    close(&links).await;
    assert_eq!(token.tree(), [0_u32; 0]);
}

/// Over HTTP a legacy session has its own count. A restarted server reports the session as unknown: nothing is sent
/// twice, and the next session starts anew.
async fn counts_over_http(peer: Peer) {
    let (links, http) = (Way::Local.links(), Listening::start(peer, "http").await);
    let (ann, ben) = (place(), place());
    let server = Server::new("counter", Http::new(http.url())).unwrap();
    assert_eq!(era(&links, &server, &ann).await, Era::Legacy);
    counts(&links, &server, &ann, 1..3).await;
    counts(&links, &server, &ben, 1..2).await;
    counts(&links, &server, &ann, 3..4).await;

    let http = http.restart().await;
    let link = open(&links, &server, &ann).await;
    let generation = link.generation();
    let error = try_call(&link, "count", "{}").await.unwrap_err();
    assert_eq!(error.loss().unwrap().reason(), LossReason::SessionUnknown, "{error}");
    assert!(!error.delivery().may_have_run(), "{error}");
    drop(link);
    let again = open(&links, &server, &ann).await;
    assert_eq!(again.generation(), generation.next());
    assert_eq!(again.loss().unwrap().reason(), LossReason::SessionUnknown);
    drop(again);
    counts(&links, &server, &ann, 1..3).await;
    close(&links).await;
    drop(http);
}

/// Modern era over HTTP: each request is independent. `numbers` are the results of four requests, two of one session
/// and two of another.
async fn counts_over_modern_http(peer: Peer, numbers: [&str; 4]) {
    let (links, http) = (Way::Local.links(), Listening::start(peer, "http").await);
    let server = kept("counter", Http::new(http.url()), EraChoice::Modern);
    let (ann, ben) = (place(), place());
    let mut counted = Vec::new();
    for place in [&ann, &ann, &ben, &ben] {
        let link = open(&links, &server, place).await;
        assert_eq!(link.initialize_result().era(), Era::Modern);
        counted.push(tool(&link, "count", &json!({})).await);
    }
    assert_eq!(counted, numbers);
    // There is no session that could be lost with the server.
    let http = http.restart().await;
    let link = open(&links, &server, &ann).await;
    tool(&link, "count", &json!({})).await;
    assert_eq!(link.loss(), None);
    drop(link);
    close(&links).await;
    drop(http);
}

#[tokio::test]
async fn typescript_sdk_works_over_stdio() {
    if !peers::are_left_out() {
        counts_over_stdio(&peers::counter_typescript(), EraChoice::Auto).await;
    }
}

#[tokio::test]
async fn typescript_sdk_works_over_legacy_stdio() {
    if !peers::are_left_out() {
        counts_over_stdio(&peers::counter_typescript(), EraChoice::Legacy).await;
    }
}

#[tokio::test]
async fn typescript_sdk_works_over_modern_stdio() {
    if !peers::are_left_out() {
        let peer = peers::counter_typescript();
        counts_over_modern_stdio(&peer, Isolation::PerSession, ["1", "2", "1"]).await;
    }
}

#[tokio::test]
async fn typescript_sdk_works_over_shared_stdio() {
    if !peers::are_left_out() {
        let peer = peers::counter_typescript();
        counts_over_modern_stdio(&peer, Isolation::Shared, ["1", "2", "3"]).await;
    }
}

/// The learned profile of one era does not decide for a server that is configured with the other.
#[tokio::test]
async fn configured_era_overrides_the_learned_one() {
    if peers::are_left_out() {
        return;
    }
    let (links, token) = (Way::Local.links(), Token::new());
    let stdio = token.stdio(&peers::counter_typescript(), &["stdio"]);
    let (kept, shared) = (Some(Isolation::PerSession), Some(Isolation::Shared));
    for (choice, isolation, expected) in [
        (EraChoice::Auto, kept, Era::Legacy),
        (EraChoice::Modern, kept, Era::Modern),
        (EraChoice::Auto, shared, Era::Modern),
        (EraChoice::Legacy, shared, Era::Legacy),
    ] {
        let server = server(&stdio, choice, isolation);
        assert_eq!(era(&links, &server, &place()).await, expected, "{choice:?} {isolation:?}");
    }
    close(&links).await;
    assert_eq!(token.tree(), [0_u32; 0]);
}

/// The short probe timeout is for servers that may not understand the probe. A server that can only be modern, by
/// configuration or by its kind, may start slowly.
#[tokio::test]
async fn modern_server_may_start_slowly() {
    if peers::are_left_out() {
        return;
    }
    let (links, token) = (Way::Local.links(), Token::new());
    let peer = peers::counter_typescript();
    let sh = Peer { program: "sh".into(), args: Vec::new(), ..peer.clone() };
    let mut args = vec!["-c", "sleep 1; exec \"$@\"", "sh", peer.program.to_str().unwrap()];
    args.extend(peer.args.iter().map(|arg| arg.to_str().unwrap()));
    args.push("stdio");
    let timeouts = Timeouts { probe: Duration::from_millis(100), ..Timeouts::default() };
    let options = Options { era: EraChoice::Modern, timeouts, ..Options::default() };
    let server = Server::with("counter", token.stdio(&sh, &args), options).unwrap();
    assert_eq!(era(&links, &server, &place()).await, Era::Modern);
    close(&links).await;
    assert_eq!(token.tree(), [0_u32; 0]);
}

#[tokio::test]
async fn typescript_sdk_works_over_http() {
    if !peers::are_left_out() {
        counts_over_http(peers::counter_typescript()).await;
    }
}

#[tokio::test]
async fn typescript_sdk_works_over_modern_http() {
    if !peers::are_left_out() {
        counts_over_modern_http(peers::counter_typescript(), ["1", "2", "3", "4"]).await;
    }
}

/// The SDK locks itself to the era of the first message. Without a configured era it is used as legacy, and the probe
/// does not lock it into the other era.
#[tokio::test]
async fn python_sdk_works_over_stdio() {
    if !peers::are_left_out() {
        counts_over_stdio(&peers::counter_python(), EraChoice::Auto).await;
    }
}

#[tokio::test]
async fn python_sdk_works_over_legacy_stdio() {
    if !peers::are_left_out() {
        counts_over_stdio(&peers::counter_python(), EraChoice::Legacy).await;
    }
}

#[tokio::test]
async fn python_sdk_works_over_modern_stdio() {
    if !peers::are_left_out() {
        let peer = peers::counter_python();
        counts_over_modern_stdio(&peer, Isolation::PerSession, ["1", "2", "1"]).await;
    }
}

#[tokio::test]
async fn python_sdk_works_over_shared_stdio() {
    if !peers::are_left_out() {
        let peer = peers::counter_python();
        counts_over_modern_stdio(&peer, Isolation::Shared, ["1", "2", "3"]).await;
    }
}

#[tokio::test]
async fn python_sdk_works_over_http() {
    if !peers::are_left_out() {
        counts_over_http(peers::counter_python()).await;
    }
}

#[tokio::test]
async fn python_sdk_works_over_modern_http() {
    if !peers::are_left_out() {
        counts_over_modern_http(peers::counter_python(), ["1", "2", "3", "4"]).await;
    }
}

#[tokio::test]
async fn fastmcp_works_over_stdio() {
    if !peers::are_left_out() {
        counts_over_stdio(&peers::counter_fastmcp(), EraChoice::Auto).await;
    }
}

#[tokio::test]
async fn fastmcp_works_over_legacy_stdio() {
    if !peers::are_left_out() {
        counts_over_stdio(&peers::counter_fastmcp(), EraChoice::Legacy).await;
    }
}

/// FastMCP forgets the state of a session between two modern requests, over stdio too. So a server that supports both
/// eras is used as legacy if it has sessions.
#[tokio::test]
async fn fastmcp_works_over_modern_stdio() {
    if !peers::are_left_out() {
        let peer = peers::counter_fastmcp();
        counts_over_modern_stdio(&peer, Isolation::PerSession, ["1", "1", "1"]).await;
    }
}

#[tokio::test]
async fn fastmcp_works_over_shared_stdio() {
    if !peers::are_left_out() {
        let peer = peers::counter_fastmcp();
        counts_over_modern_stdio(&peer, Isolation::Shared, ["1", "1", "1"]).await;
    }
}

#[tokio::test]
async fn fastmcp_works_over_http() {
    if !peers::are_left_out() {
        counts_over_http(peers::counter_fastmcp()).await;
    }
}

#[tokio::test]
async fn fastmcp_works_over_modern_http() {
    if !peers::are_left_out() {
        counts_over_modern_http(peers::counter_fastmcp(), ["1", "1", "1", "1"]).await;
    }
}

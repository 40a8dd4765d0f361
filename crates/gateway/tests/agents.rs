//! Hubs of the agent library that are connected to the gateway.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::process::Command;

use serde_json::{Value, json};
use stayput::{Error, Event, Hub, Session, SubAgent as _};
use support::{Gateway, LONG, gone, mark, stdio};

async fn count_on(session: &Session) -> Result<u64, Error> {
    Ok(session.call("counter", "count", json!({})).await?.text().parse().unwrap())
}

async fn count(hub: &Hub) -> u64 {
    hub.call("counter", "count", json!({})).await.unwrap().text().parse().unwrap()
}

/// Makes a bearer token and its hash.
fn make_token() -> (String, String) {
    let made =
        Command::new(env!("CARGO_BIN_EXE_stayput")).args(["token", "ann", "--json"]).output();
    let made: Value = serde_json::from_slice(&made.unwrap().stdout).unwrap();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("token"), text("hash"))
}

/// Returns the events until the session ends.
async fn events_until_the_end(mut events: stayput::Events) -> Vec<String> {
    let mut told = Vec::new();
    while told.last().is_none_or(|it: &String| it != "ended chat") {
        told.push(match events.next().await.unwrap() {
            Event::Linked { name, .. } => format!("linked {}", name.unwrap()),
            Event::Called { name, tool, .. } => format!("called {tool} {}", name.unwrap()),
            Event::Lost { name, reason, .. } => format!("lost {} {reason}", name.unwrap()),
            Event::Ended { name: Some(name), .. } => format!("ended {name}"),
            // The session without a name in which the hub ends the other one at the gateway.
            Event::Ended { name: None, .. } => continue,
            other => panic!("{other:?}"),
        });
    }
    told
}

/// R009: sessions by name, agents, lists, losses, events and ends are those of the gateway.
#[tokio::test]
async fn hubs_of_one_gateway_share_sessions_by_name() {
    let mark = mark("connected");
    let gateway = Gateway::start(json!({ "counter": stdio(&mark, &[]) })).await;
    let hub = || Hub::connect(&gateway.url).build().unwrap();
    let (first, second) = (hub(), hub());
    assert_eq!(count_on(&first.session("chat").await.unwrap()).await.unwrap(), 1);
    let chat = second.session("chat").await.unwrap();
    let events = second.events();
    assert_eq!(count_on(&chat).await.unwrap(), 2);
    let ann = first.agent("ann").unwrap();
    assert_eq!(count_on(&ann.session("chat").await.unwrap()).await.unwrap(), 1);
    let tools = second.tools("counter").await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "count"));
    first.close(LONG).await;
    assert_eq!(count_on(&chat).await.unwrap(), 3, "the session went on");

    let lost = chat.call("counter", "crash", json!({})).await.unwrap_err();
    let details = lost.state_lost().unwrap();
    assert_eq!((details.server(), lost.may_have_run()), (Some("counter"), true), "{lost}");
    assert_eq!(count_on(&chat).await.unwrap(), 1);
    chat.end().await.unwrap();
    let told = events_until_the_end(events).await;
    let expected = [
        "linked chat",
        "called count chat",
        "called count chat",
        "lost chat gateway",
        "called crash chat",
        "called count chat",
        "ended chat",
    ];
    assert_eq!(told, expected);
    second.close(LONG).await;
    drop(gateway);
    gone(&mark).await;
}

/// R009: runs and sub-agents have sessions of their own at the gateway, which end with them.
#[tokio::test]
async fn runs_and_sub_agents_of_a_connected_hub_have_own_sessions() {
    let mark = mark("connected-runs");
    let gateway = Gateway::start(json!({ "counter": stdio(&mark, &[]) })).await;
    let hub = Hub::connect(&gateway.url).build().unwrap();
    hub.run(async {
        assert_eq!((count(&hub).await, count(&hub).await), (1, 2));
        async { assert_eq!(count(&hub).await, 1) }.isolated("counter").await;
        let denied = async { hub.call("counter", "count", json!({})).await };
        let denied = denied.denied("counter").await.unwrap_err();
        assert_eq!(denied.kind(), "denied", "{denied}");
        assert_eq!(count(&hub).await, 3);
    })
    .await;
    hub.close(LONG).await;
    gone(&mark).await;
}

/// R009: rules hold for servers that the hub did not use before, and a typing error grants nothing.
#[tokio::test]
async fn denied_server_of_the_gateway_is_never_reached() {
    let mark = mark("connected-denied");
    let gateway = Gateway::start(json!({ "counter": stdio(&mark, &[]) })).await;
    for name in ["counter", "conter"] {
        let hub = Hub::connect(&gateway.url).build().unwrap();
        let chat = hub.session("chat").await.unwrap();
        let expected = if name == "counter" { "denied" } else { "unknown_server" };
        for _ in 0..2 {
            let on_session = count_on(&chat).denied(name).await.unwrap_err();
            assert_eq!(on_session.kind(), expected, "{on_session}");
            let in_run = async { hub.call("counter", "count", json!({})).await };
            let in_run = hub.run(in_run.denied(name)).await.unwrap_err();
            assert_eq!(in_run.kind(), expected, "{in_run}");
            // A call to a name makes it no server.
            let unknown = chat.call("conter", "count", json!({})).await.unwrap_err();
            assert_eq!(unknown.kind(), "unknown_server", "{unknown}");
        }
        let isolated = count_on(&chat).isolated(name).await;
        assert_eq!(isolated.is_ok(), name == "counter", "{isolated:?}");
    }
}

/// A token that the gateway does not know is an error that names the server, and shows no token.
#[tokio::test]
async fn connected_hub_authenticates_by_its_token() {
    let mark = mark("connected-token");
    let (token, hash) = make_token();
    let auth = json!({ "auth": { "tokens": { "ann": hash } } });
    let gateway = Gateway::with(json!({ "counter": stdio(&mark, &[]) }), auth).await;
    let hub = |token: &str| Hub::connect(&gateway.url).token(token).build().unwrap();
    let (known, foreign) = (hub(&token), hub("s3cr3t-of-somebody"));
    assert_eq!(count_on(&known.session("chat").await.unwrap()).await.unwrap(), 1);
    let refused = count_on(&foreign.session("chat").await.unwrap()).await.unwrap_err();
    assert!(refused.to_string().contains("401"), "{refused}");
    assert!(!refused.to_string().contains("s3cr3t"), "{refused}");
}

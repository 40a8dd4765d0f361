//! Third-party clients that do not notice the kill and restart of the gateway (R118, R167, E07).

use serde_json::json;
use stayput_testkit::{
    mcp::TestServer,
    peers::{self, Peer},
};

use crate::{
    driven::Driven,
    support::{Gateway, gone, mark, stdio},
};

/// R118, E07, invariant 3: the state of an HTTP server continues. The loss of a child's state is reported to the
/// client once, and then the client continues with a new state.
async fn survives_a_kill(name: &str, peer: Peer) {
    let mark = mark(name);
    let server = TestServer::http(&["--era", "legacy"]).await;
    let servers = json!({ "remote": { "url": server.url() }, "child": stdio(&mark, &[]) });
    let mut gateway = Gateway::start(servers).await;
    let url = |server: &str| format!("{}/mcp/{server}", gateway.url);
    let mut remote = Driven::start(&peer, &[&url("remote")]);
    let mut child = Driven::start(&peer, &[&url("child")]);
    for client in [&mut remote, &mut child] {
        client.open("ann").await;
        assert_eq!(client.count("ann").await, 1);
        assert_eq!(client.count("ann").await, 2);
    }
    gateway.kill();
    gone(&mark).await;
    gateway.restart_in_place().await;
    assert_eq!(remote.count("ann").await, 3);
    let told = child.call("ann", "count").await;
    assert_eq!(told["isError"], true, "{told}");
    let sentence = told["content"][0]["text"].as_str().unwrap();
    assert!(sentence.contains("was lost"), "{sentence}");
    assert_eq!(child.count("ann").await, 1);
    assert_eq!(child.count("ann").await, 2);
    assert_eq!(remote.count("ann").await, 4);
}

#[tokio::test]
async fn python_sdk_survives_a_kill() {
    if !peers::are_left_out() {
        survives_a_kill("kill-python", peers::client("python_sdk.py")).await;
    }
}

#[tokio::test]
async fn typescript_sdk_1_survives_a_kill() {
    if !peers::are_left_out() {
        survives_a_kill("kill-typescript1", peers::client("typescript1.mjs")).await;
    }
}

#[tokio::test]
async fn typescript_sdk_2_survives_a_kill() {
    if !peers::are_left_out() {
        survives_a_kill("kill-typescript2", peers::client("typescript2.mjs")).await;
    }
}

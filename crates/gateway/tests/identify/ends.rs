//! Sessions that end, are lost or are switched, as their clients see it.

use std::time::Duration;

use serde_json::json;
use stayput_testkit::processes;

use crate::{
    call, count, count_after_a_loss,
    support::{Client, Gateway, gone, mark, stdio},
    text, with,
};

/// Waits until a server completes an argument. That needs a process, and reports no loss.
async fn until_it_runs(gateway: &Gateway, client: &Client) {
    let ask = json!({ "ref": { "type": "ref/prompt", "name": "greet" },
        "argument": { "name": "name", "value": "x" } });
    let meta = json!({ "dev.stayput/session": "key:task" });
    let ask = json!({ "ref": ask["ref"], "argument": ask["argument"], "_meta": meta });
    let completed = async || {
        let completed = client.request(gateway, "completion/complete", ask.clone()).await;
        completed["result"].is_object().then_some(())
    };
    stayput_testkit::until_some("the completion has a result", completed).await;
}

/// Invariant 3: `session_start` reports the loss of its own server once, and no loss of another.
#[tokio::test]
async fn session_start_reports_the_loss_of_its_own_server() {
    let (one, two) = (mark("own-one"), mark("own-two"));
    let choice = json!({ "handles": "always" });
    let servers = json!({
        "one": with(stdio(&one, &[]), choice.clone()), "two": with(stdio(&two, &[]), choice),
    });
    let gateway = Gateway::start(servers).await;
    let clients = [gateway.client("one").await, gateway.client("two").await];
    let start = async |client: &Client| {
        let start = ("session_start", json!({ "name": "task" }), json!({}));
        let started = call(&gateway, client, &[], start).await;
        started["result"]["structuredContent"]["state"].as_str().unwrap().to_owned()
    };
    let key = json!({ "dev.stayput/session": "key:task" });
    for client in &clients {
        assert_eq!(count(&gateway, client, &[], key.clone()).await, "1");
    }
    for pid in processes::with_token(&one) {
        let kill = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
        assert!(kill.unwrap().success());
    }
    gone(&one).await;
    until_it_runs(&gateway, &clients[0]).await;
    assert_eq!(start(&clients[1]).await, "kept", "it lost nothing");
    assert_eq!(count(&gateway, &clients[1], &[], key.clone()).await, "2");
    assert_eq!(start(&clients[0]).await, "lost");
    let next = call(&gateway, &clients[0], &[], ("count", json!({}), key)).await;
    assert_eq!(text(&next), "1", "it was told once: {next}");
    let kept = async || (start(&clients[0]).await == "kept").then_some(());
    stayput_testkit::until_some("the loss is reported no more", kept).await;
}

/// R153: a connection continues after its session was ended, even if the limit allows only one session.
#[tokio::test]
async fn session_can_be_ended_at_the_limit() {
    let mark = mark("limit");
    let server = with(stdio(&mark, &[]), json!({ "handles": "always" }));
    let settings = json!({ "limits": { "sessions_per_owner": 1 } });
    let gateway = Gateway::with(json!({ "test": server }), settings).await;
    let client = gateway.client("test").await;
    // A session in use is not evicted.
    let events = client.get(&gateway, None).await.events();
    for _ in 0..2 {
        assert_eq!(count(&gateway, &client, &[], json!({})).await, "1");
        assert_eq!(count(&gateway, &client, &[], json!({})).await, "2");
        let ended = call(&gateway, &client, &[], ("session_end", json!({}), json!({}))).await;
        assert_eq!(ended["result"]["structuredContent"]["ended"], true, "{ended}");
    }
    drop(events);
}

/// Invariant 3: connections that share a session which another connection ends get an error, and continue with the
/// next session.
#[tokio::test]
async fn session_ended_elsewhere_is_replaced_and_reported() {
    let mark = mark("stranded");
    let server = with(stdio(&mark, &[]), json!({ "handles": "always" }));
    let settings = json!({ "session_tools": "all" });
    let gateway = Gateway::with(json!({ "test": server }), settings).await;
    let plain = |client: &Client| Client {
        server: "test".into(),
        id: client.id.clone(),
        greeting: json!({}),
    };
    let named = [gateway.client("test/~work").await, gateway.client("test/~work").await];
    let named = named.each_ref().map(plain);
    let led = [gateway.client("test").await, gateway.client("test").await];
    let started = call(&gateway, &led[0], &[], ("session_start", json!({}), json!({}))).await;
    let handle = &started["result"]["structuredContent"]["session_id"];
    for client in &led {
        let switch = ("session_switch", json!({ "session_id": handle }), json!({}));
        call(&gateway, client, &[], switch).await;
    }
    for [ann, bob] in [named, led] {
        assert_eq!(count(&gateway, &ann, &[], json!({})).await, "1");
        assert_eq!(count(&gateway, &bob, &[], json!({})).await, "2");
        call(&gateway, &ann, &[], ("session_end", json!({}), json!({}))).await;
        let told = call(&gateway, &bob, &[], ("count", json!({}), json!({}))).await;
        assert_eq!(told["result"]["_meta"]["dev.stayput/state"]["state"], "lost", "{told}");
        assert_eq!(count_after_a_loss(&gateway, &bob, &json!({})).await, "1");
        assert_eq!(count(&gateway, &bob, &[], json!({})).await, "2");
        assert_eq!(count(&gateway, &ann, &[], json!({})).await, "1", "she wanted a new one");
    }
}

/// Invariant 7: an open stream keeps the session from idling to which the connection was switched.
#[tokio::test]
async fn stream_keeps_the_switched_session_alive() {
    let mark = mark("switched-stream");
    let settings = json!({ "session_tools": "all", "expiry": { "idle": "6s" } });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), settings).await;
    let client = gateway.client("test").await;
    let events = client.get(&gateway, None).await.events();
    let switch = ("session_switch", json!({ "session_id": "key:other" }), json!({}));
    call(&gateway, &client, &[], switch).await;
    assert_eq!(count(&gateway, &client, &[], json!({})).await, "1");
    tokio::time::sleep(Duration::from_millis(7_500)).await;
    assert_eq!(count(&gateway, &client, &[], json!({})).await, "2");
    drop(events);
}

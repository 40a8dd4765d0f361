//! The argument that names a session, and the tools for sessions.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::time::Duration;

use axum::Router;
use rmcp::transport::StreamableHttpServerConfig;
use serde_json::json;
use stayput_server::ServerSessions;
use support::{Caller, World, builder, in_our_hands, listen};

/// R150, R155, E39: the tools show the argument, and one that has it for itself keeps it.
#[tokio::test]
async fn tools_show_the_argument() {
    let world = World::start(builder().in_memory()).await;
    let mut client = world.modern();
    let listed = client.request("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let takes = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        tool["inputSchema"]["properties"].clone()
    };
    assert!(takes("count")["session_id"]["description"].as_str().unwrap().contains("keep it"));
    assert_eq!(takes("count")["by"]["type"], "integer");
    assert!(
        takes("own")["session_id"]["description"].is_null()
            && !takes("own")["stayput_session_id"].is_null()
    );
    assert_eq!(client.text("own", json!({ "session_id": "key:x" })).await, "key:x");
    for tool in ["session_start", "session_info", "session_end", "session_list"] {
        assert!(tools.iter().any(|it| it["name"] == tool), "{tool}");
    }
    let start = tools.iter().find(|tool| tool["name"] == "session_start").unwrap();
    let description = start["description"].as_str().unwrap();
    assert!(description.contains("30 min") && description.contains("24 h"), "{description}");
    let sessions = ServerSessions::in_memory();
    let only = sessions.session_tools().stateful(["count"]).no_session_tools();
    let router = only.mount(rmcp::handler::server::tool::ToolRouter::<World>::new());
    assert!(router.list_all().is_empty());
}

/// R154: who has no connection is not told of the tool that would let it lead elsewhere, in one piece or in a stream.
#[tokio::test]
async fn the_switch_is_for_connections() {
    for json in [true, false] {
        let sessions = builder().in_memory();
        let counter = support::Counter::new(&sessions);
        let config = StreamableHttpServerConfig::default().with_json_response(json);
        let service = sessions.http_service_with(move || Ok(counter.clone()), config);
        let url = listen(Router::new().route_service("/mcp", service)).await;
        let listed = async |mut client: Caller| {
            let listed = client.request("tools/list", json!({})).await;
            let tools = listed["result"]["tools"].as_array().unwrap().clone();
            tools.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let modern = listed(Caller::modern(&url)).await;
        let mut legacy = listed(Caller::modern(&url).shakes_hands().await).await;
        assert!(legacy.contains(&"session_switch".to_owned()), "{legacy:?}");
        legacy.retain(|tool| tool != "session_switch");
        assert_eq!(modern, legacy);
    }
}

/// R058: when a session was made, and when it was last used.
#[tokio::test]
async fn times_are_kept() {
    let (world, clock, _) = in_our_hands(|it| it).await;
    let mut ann = world.modern().with("x-user", "ann");
    let handle = ann.start().await;
    clock.advance(Duration::from_secs(60));
    for unused in [60, 0] {
        world.sessions.sweep().await.unwrap();
        let listed = ann.call("session_list", json!({})).await["structuredContent"].clone();
        let [session] = &listed["sessions"].as_array().unwrap()[..] else { panic!("{listed}") };
        let times = (&session["age_seconds"], &session["unused_seconds"]);
        assert_eq!(times, (&json!(60), &json!(unused)));
        let info = ann.call("session_info", json!({ "session_id": handle })).await;
        assert_eq!(info["structuredContent"]["age_seconds"], 60);
    }
}

/// R151, R152, R158, R159: a session by its name in a project, told about, and ended.
#[tokio::test]
async fn sessions_are_started_told_about_and_ended() {
    let world = World::start(builder().in_memory()).await;
    let mut client = world.modern();
    let named = json!({ "name": "task", "agent": "a", "project": "p/q" });
    let started = client.call("session_start", named.clone()).await["structuredContent"].clone();
    let handle = started["session_id"].clone();
    assert_eq!(client.text("count", json!({ "by": 4, "session_id": handle })).await, "4");
    // Lost by the model, found by its name.
    let again = client.call("session_start", named).await["structuredContent"].clone();
    assert_eq!((&again["session"], again["state"].as_str()), (&started["session"], Some("kept")));
    assert_eq!(client.text("read", json!({ "session_id": again["session_id"] })).await, "4");
    let other =
        client.call("session_start", json!({ "name": "task" })).await["structuredContent"].clone();
    assert_ne!(other["session"], started["session"]);
    let info =
        client.call("session_info", json!({ "session_id": handle })).await["structuredContent"]
            .clone();
    assert_eq!(
        (&info["session"], &info["expires_in_seconds"]),
        (&started["session"], &json!(1800))
    );
    client.call("session_end", json!({ "session_id": handle })).await;
    for handle in [&handle, &again["session_id"]] {
        let over = client.error("count", json!({ "by": 1, "session_id": handle })).await;
        assert!(over.contains("was ended"), "{over}");
    }
    assert!(client.error("session_info", json!({})).await.contains("session_id"));
}

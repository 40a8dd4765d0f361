//! The session argument and the session tools.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::{sync::Arc, time::Duration};

use axum::Router;
use rmcp::{
    handler::server::tool::{ToolRoute, ToolRouter},
    model::{CallToolResult, JsonObject, Tool},
    transport::StreamableHttpServerConfig,
};
use serde_json::json;
use stayput_server::ServerSessions;
use support::{Client, TestServer, builder, listen, start_with_manual_clock};

/// R150, R155, E39: tools list the session argument, and a tool's own `session_id` is kept.
#[tokio::test]
async fn tools_list_the_session_argument() {
    let server = TestServer::start(builder().in_memory()).await;
    let mut client = server.modern();
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
    let router = only.mount(ToolRouter::<TestServer>::new());
    assert!(router.list_all().is_empty());
}

/// R154: the switch tool is hidden from clients without a connection, in JSON and in SSE.
#[tokio::test]
async fn switch_tool_is_listed_only_to_connections() {
    for json in [true, false] {
        let sessions = builder().in_memory();
        let counter = support::Counter::new(&sessions);
        let config = StreamableHttpServerConfig::default().with_json_response(json);
        let service = sessions.http_service_with(move || Ok(counter.clone()), config);
        let url = listen(Router::new().route_service("/mcp", service)).await;
        let listed = async |mut client: Client| {
            let listed = client.request("tools/list", json!({})).await;
            let tools = listed["result"]["tools"].as_array().unwrap().clone();
            tools.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let modern = listed(Client::modern(&url)).await;
        let mut legacy = listed(Client::modern(&url).initialize().await).await;
        assert!(legacy.contains(&"session_switch".to_owned()), "{legacy:?}");
        legacy.retain(|tool| tool != "session_switch");
        assert_eq!(modern, legacy);
    }
}

/// A tool of the server keeps its name. Then all session tools get a prefix, as behind the gateway.
#[tokio::test]
async fn clashing_tool_keeps_its_name() {
    let own = Tool::new("session_info", "mine", Arc::new(JsonObject::new()));
    let mut router = ToolRouter::<TestServer>::new();
    let answer = || async { Ok(CallToolResult::success(Vec::new()).into()) };
    router.add_route(ToolRoute::new_dyn(own, move |_| Box::pin(answer())));
    let router = ServerSessions::in_memory().session_tools().mount(router);
    let mut names: Vec<_> = router.list_all().into_iter().map(|it| it.name).collect();
    names.sort_unstable();
    let prefixed = ["stayput_session_end", "stayput_session_info", "stayput_session_start"];
    assert_eq!(names, [&["session_info"], &prefixed[..]].concat());
}

/// A name that the model chooses is an explicit request: it wins over the conversation that the host tells. Without a
/// name, the session of that conversation is returned.
#[tokio::test]
async fn chosen_name_wins_over_a_hint() {
    let server = TestServer::start(builder().in_memory()).await;
    let mut client = server.modern();
    let mut start = async |arguments: serde_json::Value| {
        let mut params = json!({ "name": "session_start", "arguments": arguments });
        params["_meta"]["threadId"] = "t-1".into();
        client.request("tools/call", params).await["result"]["structuredContent"].clone()
    };
    let hinted = start(json!({})).await;
    let named = start(json!({ "name": "task" })).await;
    assert_eq!((&hinted["state"], &named["state"]), (&json!("fresh"), &json!("fresh")));
    assert_ne!(hinted["session"], named["session"]);
    let [again, by_handle] = [
        start(json!({ "name": "task" })).await,
        start(json!({ "name": "other", "session_id": named["session_id"] })).await,
    ];
    assert_eq!((&again["session"], &again["state"]), (&named["session"], &json!("kept")));
    assert_eq!(by_handle["session"], named["session"]);
    assert_eq!(start(json!({})).await["session"], hinted["session"]);
}

/// R058: creation time and time of last use.
#[tokio::test]
async fn session_times_are_reported() {
    let (server, clock, _) = start_with_manual_clock(|it| it).await;
    let mut ann = server.modern().with("x-user", "ann");
    let handle = ann.start().await;
    clock.advance(Duration::from_secs(60));
    for unused in [60, 0] {
        server.sessions.sweep().await.unwrap();
        let listed = ann.call("session_list", json!({})).await["structuredContent"].clone();
        let [session] = &listed["sessions"].as_array().unwrap()[..] else { panic!("{listed}") };
        let times = (&session["age_seconds"], &session["unused_seconds"]);
        assert_eq!(times, (&json!(60), &json!(unused)));
        let info = ann.call("session_info", json!({ "session_id": handle })).await;
        assert_eq!(info["structuredContent"]["age_seconds"], 60);
    }
}

/// R151, R152, R158, R159: a session is found by name and project, described, and ended.
#[tokio::test]
async fn session_tools_start_describe_and_end_a_session() {
    let server = TestServer::start(builder().in_memory()).await;
    let mut client = server.modern();
    let named = json!({ "name": "task", "agent": "a", "project": "p/q" });
    let started = client.call("session_start", named.clone()).await["structuredContent"].clone();
    let handle = started["session_id"].clone();
    assert_eq!(client.text("count", json!({ "by": 4, "session_id": handle })).await, "4");
    // A model that lost the handle finds the session by name.
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

//! Places where a request can name its session, and what becomes of one that names none.

use serde_json::{Value, json};

use crate::kit::{Peer, Stage, hello, outcome};

/// Name of a session in a request.
#[derive(Default)]
struct Name {
    header: Option<(&'static str, &'static str)>,
    arguments: Value,
    meta: Value,
}

/// Observer: counts once on the session of the connection and once on the session of this name. The second count is
/// `1` on a session of its own, and `2` on that of the connection.
async fn second_count(stage: Stage, name: &Name) -> String {
    let gateway = stage.gateway().await;
    let client = Peer::default().connect(&gateway).await.unwrap();
    assert_eq!(client.call(&gateway, "count", json!({})).await, "1");
    let arguments = if name.arguments.is_null() { json!({}) } else { name.arguments.clone() };
    let mut params = json!({ "name": "count", "arguments": arguments });
    if !name.meta.is_null() {
        params["_meta"] = name.meta.clone();
    }
    let body = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    let client = name.header.map_or(client.clone(), |(name, value)| client.and(name, value));
    outcome(client.post(&gateway, "test", &body).await).await
}

/// Observer: one call on a new connection.
async fn one_count(stage: Stage) -> String {
    crate::kit::count(stage).await
}

/// Observer: status of `initialize` on the path of a session.
async fn path(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    Peer::default().post(&gateway, "test/~chat", &hello()).await.status.as_str().to_owned()
}

/// Observer: whether the answer to `initialize` sets a cookie.
async fn cookie(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let answer = Peer::default().post(&gateway, "test", &hello()).await;
    answer.header("set-cookie").starts_with("mcp_session_id=").to_string()
}

/// Observer: whether there is a tool to start a session.
async fn session_tool(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let client = Peer::default().connect(&gateway).await.unwrap();
    client.tools(&gateway).await.iter().any(|tool| tool["name"] == "session_start").to_string()
}

fn handles() -> Value {
    json!({ "mcpServers": { "test": { "stayput": { "handles": "always" } } } })
}

keys! {
    "stayput.identify.argument" argument_names_a_session |key| {
        let name = Name { arguments: json!({ "session_id": "key:x" }), ..Name::default() };
        let observe = async |stage| second_count(stage, &name).await;
        key.on(&handles()).set(json!(false)).shows(observe, ["2", "1"]).await;
    }
    "stayput.identify.meta" meta_names_a_session |key| {
        let name = Name { meta: json!({ "dev.stayput/session": "key:x" }), ..Name::default() };
        let observe = async |stage| second_count(stage, &name).await;
        key.set(json!(false)).shows(observe, ["2", "1"]).await;
    }
    "stayput.identify.header" header_names_a_session |key| {
        let name = Name { header: Some(("stayput-session", "key:x")), ..Name::default() };
        let observe = async |stage| second_count(stage, &name).await;
        key.set(json!(false)).shows(observe, ["2", "1"]).await;
    }
    "stayput.identify.path" path_names_a_session |key| {
        key.set(json!(false)).shows(path, ["404", "200"]).await;
    }
    "stayput.identify.connection" connection_has_a_session |key| {
        key.set(json!(false)).shows(one_count, ["error", "1"]).await;
    }
    "stayput.identify.cookie" cookie_names_a_connection |key| {
        key.set(json!(true)).shows(cookie, ["true", "false"]).await;
    }
    "stayput.identify.custom" header_of_another_program_names_a_session |key| {
        let name = Name { header: Some(("x-chat", "x")), ..Name::default() };
        let observe = async |stage| second_count(stage, &name).await;
        key.set(json!(["header:X-Chat"])).shows(observe, ["1", "2"]).await;
    }
    "stayput.hints" hint_of_a_host_names_a_session |key| {
        let name = Name { meta: json!({ "threadId": "x" }), ..Name::default() };
        let observe = async |stage| second_count(stage, &name).await;
        key.set(json!([])).shows(observe, ["2", "1"]).await;
    }
    "stayput.unidentified" unidentified_call_runs_on_a_new_session |key| {
        let key = key.with(&json!({ "identify": { "connection": false } }));
        key.set(json!("mint")).shows(one_count, ["1", "error"]).await;
    }
    "stayput.session_tools" session_tools_can_be_left_out |key| {
        key.on(&handles()).set(json!("off")).shows(session_tool, ["false", "true"]).await;
    }
}

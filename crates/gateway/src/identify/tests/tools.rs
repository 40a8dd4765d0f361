//! Tests of the session tools, for a client without a connection.

use super::*;
use crate::{config::SessionTools, session_tools};

async fn called(world: &Fixture, owner: &Owner, tool: &str, arguments: Value) -> Option<Value> {
    let mut request = Request::call(owner);
    request.params = json!({ "name": tool, "arguments": arguments });
    let text = request.to_text();
    let message = Message::parse(text.as_bytes()).unwrap();
    let done = session_tools::call(&world.context(&request, &message)).await?;
    let answer: Value = serde_json::from_slice(&done.text).unwrap();
    if let Some(then) = done.then {
        then.run();
    }
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    Some(answer["result"].clone())
}

async fn ok(world: &Fixture, tool: &str, arguments: Value) -> Value {
    let result = called(world, &ann(), tool, arguments).await.unwrap();
    assert!(result["isError"].is_null(), "{result}");
    let text = result["content"][0]["text"].as_str().unwrap().to_owned();
    let structure = result["structuredContent"].clone();
    if let Some(handle) = structure["session_id"].as_str() {
        assert!(text.contains(handle), "the same in text: {text}");
    }
    structure
}

async fn refused(world: &Fixture, owner: &Owner, tool: &str, arguments: Value) -> String {
    let result = called(world, owner, tool, arguments).await.unwrap();
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

fn all() -> Identify {
    Identify { session_tools: SessionTools::All, ..Identify::default() }
}

/// R148, R151, R156: a session is started, used, inspected and ended; after that its handle is refused.
#[tokio::test]
async fn ended_session_is_refused_with_a_hint() {
    let world = Fixture::new().await;
    let started = ok(&world, "session_start", json!({})).await;
    let other = ok(&world, "session_start", json!({})).await;
    assert_eq!((&started["state"], &started["name"]), (&json!("fresh"), &Value::Null));
    assert_ne!(started["session"], other["session"]);
    let handle = &started["session_id"];
    let mut call = Request::call(&ann());
    call.params["arguments"]["session_id"] = handle.clone();
    assert_eq!(world.ask(&call).await.id().to_string(), started["session"]);
    let info = ok(&world, "session_info", json!({ "session_id": handle })).await;
    assert_eq!(info["session"], started["session"]);
    assert!(info["session_id"].is_null(), "a handle is shown only where it is given out");
    let again = ok(&world, "session_start", json!({ "session_id": handle })).await;
    assert_eq!((&again["session_id"], &again["session"]), (handle, &started["session"]));
    let ended = ok(&world, "session_end", json!({ "session_id": handle })).await;
    assert_eq!(ended["ended"], true);
    let text = world.ask(&call).await.refusal();
    assert!(text.contains("was ended") && text.contains("session_start"), "{text}");
    assert!(refused(&world, &ann(), "session_info", json!({})).await.contains("session_start"));
}

/// R149: an unknown id is reported, and no session is created for it.
#[tokio::test]
async fn unknown_session_is_not_created_by_session_start() {
    let world = Fixture::new().await;
    let never_issued = Handle::generate();
    let arguments = json!({ "session_id": never_issued.expose() });
    let unknown = refused(&world, &ann(), "session_start", arguments).await;
    assert!(unknown.contains("no such session"), "{unknown}");
    let (_, handle) = world.handle(&eve()).await;
    for tool in ["session_start", "session_info", "session_end"] {
        let foreign = refused(&world, &ann(), tool, json!({ "session_id": handle })).await;
        assert_eq!(foreign, unknown);
    }
}

/// E31: the argument of a session tool is only for Stayput. A value that is no name is refused, not passed over: else
/// `session_start` would begin anew, and `session_end` would end the session of the connection.
#[tokio::test]
async fn session_tools_refuse_a_value_that_is_no_name() {
    let world = Fixture::new().await;
    for value in [json!("42"), json!(7)] {
        for tool in ["session_start", "session_info", "session_end"] {
            let arguments = json!({ "session_id": value });
            let text = refused(&world, &ann(), tool, arguments).await;
            assert!(text.contains("the argument `session_id` must be a session id"), "{text}");
        }
    }
    assert!(world.app.sessions.held_sessions().is_empty());
}

/// Compaction: a client that lost its handle gets a new one by the session's name. Only the owner can do that.
#[tokio::test]
async fn lost_handle_is_reissued_by_name() {
    let world = Fixture::new().await;
    let first = ok(&world, "session_start", json!({ "name": "task 7" })).await;
    let again = ok(&world, "session_start", json!({ "name": "task 7" })).await;
    assert_eq!((&again["session"], &again["state"]), (&first["session"], &json!("kept")));
    assert_ne!(again["session_id"], first["session_id"]);
    let mut call = Request::call(&ann());
    for handle in [&first["session_id"], &again["session_id"]] {
        call.params["arguments"]["session_id"] = handle.clone();
        assert_eq!(world.ask(&call).await.id().to_string(), first["session"], "both are good");
    }
    let hers = called(&world, &eve(), "session_start", json!({ "name": "task 7" })).await.unwrap();
    assert_ne!(hers["structuredContent"]["session"], first["session"]);
    // Other name sources reach the same session by this name; another agent or project has its own.
    let mut named = Request::call(&ann());
    named.path = Some("task 7".to_owned());
    assert_eq!(world.ask(&named).await.id().to_string(), first["session"]);
    let mut seen = vec![first["session"].clone()];
    for more in [
        json!({ "agent": "a" }),
        json!({ "project": "p" }),
        json!({ "agent": "a", "project": "p" }),
        json!({ "project": "p/q" }),
    ] {
        let mut arguments = more.clone();
        arguments["name"] = "task 7".into();
        let other = ok(&world, "session_start", arguments).await;
        assert!(!seen.contains(&other["session"]), "{more}");
        seen.push(other["session"].clone());
    }
    let shifted = ok(&world, "session_start", json!({ "project": "p", "name": "q/task 7" })).await;
    assert!(!seen.contains(&shifted["session"]));
}

/// Invariant 3: a name whose session expired reports the loss once.
#[tokio::test]
async fn name_of_an_expired_session_reports_the_loss() {
    let world = Fixture::new().await;
    ok(&world, "session_start", json!({ "name": "a" })).await;
    world.pass(31).await;
    let result = called(&world, &ann(), "session_start", json!({ "name": "a" })).await.unwrap();
    assert_eq!(result["structuredContent"]["state"], "lost", "{result}");
    assert!(result["content"][0]["text"].as_str().unwrap().contains("was lost"), "{result}");
    let acknowledged = async {
        while ok(&world, "session_start", json!({ "name": "a" })).await["state"] != "kept" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), acknowledged).await.unwrap();
}

/// R157: a conversation with a hint of its host already has a session.
#[tokio::test]
async fn session_start_returns_the_session_of_the_hint() {
    let world = Fixture::new().await;
    let mut request = Request::call(&ann());
    request.params["_meta"]["threadId"] = "t".into();
    let id = world.ask(&request).await.id();
    request.params["name"] = "session_start".into();
    let text = request.to_text();
    let message = Message::parse(text.as_bytes()).unwrap();
    let done = session_tools::call(&world.context(&request, &message)).await.unwrap();
    let answer: Value = serde_json::from_slice(&done.text).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["session"], id.to_string());
}

/// R153: ids, names and ages are listed; a handle is issued only to an authenticated owner.
#[tokio::test]
async fn sessions_are_listed_for_their_owner() {
    let world = Fixture::with(all(), Handles::Auto).await;
    let named = ok(&world, "session_start", json!({ "name": "mine" })).await;
    let mut hinted = Request::call(&ann());
    hinted.params["_meta"]["threadId"] = "host-secret".into();
    world.ask(&hinted).await.id();
    called(&world, &eve(), "session_start", json!({ "name": "hers" })).await.unwrap();
    let listed = ok(&world, "session_list", json!({})).await;
    let sessions = listed["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2, "{listed}");
    assert!(!listed.to_string().contains("host-secret") && !listed.to_string().contains("hers"));
    let mine = sessions.iter().find(|it| it["name"] == "mine").unwrap();
    assert_eq!(mine["session"], named["session"]);
    let issued = ok(&world, "session_list", json!({ "session": mine["session"] })).await;
    let mut call = Request::call(&ann());
    call.params["arguments"]["session_id"] = issued["session_id"].clone();
    assert_eq!(world.ask(&call).await.id().to_string(), named["session"]);
    let asking = json!({ "session": mine["session"] });
    let foreign = refused(&world, &eve(), "session_list", asking.clone()).await;
    assert!(foreign.contains("no such session"), "{foreign}");
    let anonymous = refused(&world, &Owner::anonymous(), "session_list", asking).await;
    assert!(anonymous.contains("authenticated"), "{anonymous}");
}

/// R150, R155: a model sees the argument in each tool, the session tools once beside them, and the lifetime.
#[tokio::test]
async fn tool_list_includes_the_session_tools_once() {
    let world = Fixture::new().await;
    let page = r#"{"tools":[{"name":"count","inputSchema":{"type":"object"}}],"n":1.10}"#;
    let shown = async |world: &Fixture, cursor: Value| {
        let mut request = Request::call(&ann());
        (request.method, request.params) = ("tools/list", json!({ "cursor": cursor }));
        let text = request.to_text();
        let message = Message::parse(text.as_bytes()).unwrap();
        let context = world.context(&request, &message);
        let shown = world.app.tool_edits(&context).await?.apply(&context, page)?;
        assert!(shown.ends_with(r#","n":1.10}"#), "{shown}");
        Some(serde_json::from_str::<Value>(&shown).unwrap()["tools"].as_array().unwrap().clone())
    };
    let names = |tools: &[Value]| tools.iter().map(|it| it["name"].clone()).collect::<Vec<_>>();
    let first = shown(&world, Value::Null).await.unwrap();
    assert_eq!(names(&first), ["count", "session_start", "session_info", "session_end"]);
    assert_eq!(first[0]["inputSchema"]["properties"]["session_id"]["type"], "string");
    let start = first[1]["description"].as_str().unwrap();
    assert!(start.contains("30 min after its last call") && start.contains("keep it"), "{start}");
    let second = shown(&world, "next".into()).await.unwrap();
    assert_eq!(names(&second), ["count"], "once for all pages");
    let more = Fixture::with(all(), Handles::Auto).await;
    let more = shown(&more, Value::Null).await.unwrap();
    assert_eq!(names(&more[4..]), ["session_list"], "without a connection nothing can be switched");
    let off = Identify { session_tools: SessionTools::Off, ..Identify::default() };
    let off = Fixture::with(off, Handles::Never).await;
    assert_eq!(shown(&off, Value::Null).await, None);
    assert!(called(&off, &ann(), "session_start", json!({})).await.is_none());
}

/// A server keeps its tool with a clashing name; all session tools get a prefix.
#[tokio::test]
async fn clashing_server_tools_stay_visible() {
    let tools = json!([{ "name": "session_info", "inputSchema": { "type": "object" } }]);
    let world = Fixture::with_tools(Identify::default(), Handles::Auto, &tools).await;
    assert!(called(&world, &ann(), "session_info", json!({})).await.is_none(), "the server's");
    assert!(called(&world, &ann(), "session_start", json!({})).await.is_none());
    ok(&world, "stayput_session_start", json!({})).await;
    let text = refused(&world, &ann(), "stayput_session_info", json!({})).await;
    assert!(text.contains("`stayput_session_start`"), "{text}");
    let other = Fixture::new().await;
    assert!(called(&other, &ann(), "stayput_session_start", json!({})).await.is_none());
    assert!(called(&other, &ann(), "session_switch", json!({})).await.is_none());
}

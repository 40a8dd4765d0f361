//! The notebook example: tools write, and prompt, resource and page read the same session.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::send;
use support::{Client, Example, handle_in};

/// Returns the texts of the prompt and of the resource.
async fn read(client: &mut Client, session: Option<&str>) -> [String; 2] {
    let with = |mut params: Value| {
        if let Some(session) = session {
            params["_meta"]["dev.stayput/session"] = session.into();
        }
        params
    };
    let prompt = client.request("prompts/get", with(json!({ "name": "summary" }))).await;
    let prompt = &prompt["result"]["messages"][0]["content"]["text"];
    let resource = client.request("resources/read", with(json!({ "uri": "notes://all" }))).await;
    let resource = &resource["result"]["contents"][0]["text"];
    [prompt, resource].map(|it| it.as_str().unwrap_or_default().to_owned())
}

/// R048, R056, R063: prompts and resources use the session of the tools, in both eras, and no other session.
#[tokio::test]
async fn prompt_and_resource_read_the_state_of_tools() {
    let notebook = Example::start("notebook", "memory:").await;
    let mut modern = Client::modern(&notebook.url);
    let noted = modern.call("note", json!({ "text": "milk" })).await;
    let handle = handle_in(noted["content"][1]["text"].as_str().unwrap());
    let summary = |notes: &str| format!("Summarise these notes:\n{notes}");
    assert_eq!(read(&mut modern, Some(&handle)).await, [summary("milk"), "milk".into()]);
    assert_eq!(read(&mut modern, Some("key:other")).await, [summary(""), String::new()]);
    // E29: without a name the cookie identifies a new session.
    let unnamed = modern.ask("prompts/get", json!({ "name": "summary" })).await;
    assert!(unnamed.header("set-cookie").starts_with("mcp_session_id=sp_"));
    let mut legacy = Client::modern(&notebook.url).initialize().await;
    legacy.text("note", json!({ "text": "bread" })).await;
    assert_eq!(read(&mut legacy, None).await, [summary("bread"), "bread".into()]);
    assert_eq!(read(&mut legacy, Some(&handle)).await, [summary("milk"), "milk".into()]);
    for client in [&mut modern, &mut legacy] {
        let listed = client.request("resources/list", json!({})).await;
        assert_eq!(listed["result"]["resources"][0]["uri"], "notes://all", "{listed}");
        let listed = client.request("prompts/list", json!({})).await;
        assert_eq!(listed["result"]["prompts"][0]["name"], "summary", "{listed}");
    }
}

/// R044, R046: the page and a model with the handle of its cookie share a session.
#[tokio::test]
async fn page_shows_the_notes_of_its_cookie() {
    let notebook = Example::start("notebook", "memory:").await;
    let page = notebook.url.replace("/mcp", "/");
    let first = send(Method::GET, &page, &[], "").await.unwrap();
    assert_eq!(first.status, 200);
    let cookie = first.header("set-cookie").split(';').next().unwrap().to_owned();
    assert_eq!(first.bytes().await.unwrap(), "");
    let handle = handle_in(&cookie);
    let mut model = Client::modern(&notebook.url);
    model.text("note", json!({ "text": "milk", "session_id": handle })).await;
    let again = send(Method::GET, &page, &[("cookie", &cookie)], "").await.unwrap();
    assert_eq!(again.bytes().await.unwrap(), "milk");
    let other = send(Method::GET, &page, &[], "").await.unwrap();
    assert_eq!(other.bytes().await.unwrap(), "", "another visitor has another session");
}

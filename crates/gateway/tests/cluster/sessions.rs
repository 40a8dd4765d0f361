//! Session tools and the admin API at any replica.

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::send;

use crate::{
    replicas::{Database, Replicas, settings},
    support::{Gateway, gone, mark, stdio},
};

/// Returns the text of a result.
fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// Runs `stayput sessions --all` for a gateway.
fn list_sessions(gateway: &Gateway) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(["sessions", "--all", "--config"]).arg(gateway.config());
    command.env("XDG_DATA_HOME", gateway.folder.path().join("data"));
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// After `session_switch`, no replica runs a call of the connection in the former session.
#[tokio::test]
async fn switch_of_a_session_is_known_to_all_replicas() {
    let (mark, database) = (mark("cluster-switch"), Database::redis().await);
    let mut settings = settings(database.url());
    settings["session_tools"] = json!("all");
    let replicas = Replicas::with(&json!({ "local": stdio(&mark, &[]) }), &settings).await;
    let client = replicas.all[0].client("local").await;
    // Every replica has a copy of the connection.
    for expected in ["1", "2", "3"] {
        assert_eq!(replicas.count(&client).await, expected);
    }
    let start = client.call(&replicas.all[1], "session_start", json!({ "name": "other" })).await;
    let handle = start["result"]["structuredContent"]["session_id"].as_str();
    let handle = handle.unwrap_or_else(|| panic!("{start}")).to_owned();
    let switch = client.call(&replicas.all[2], "session_switch", json!({ "session_id": handle }));
    let switched = switch.await;
    assert_ne!(switched["result"]["isError"], true, "{switched}");
    for expected in ["1", "2", "3", "4"] {
        let answer = client.call(replicas.next(), "count", json!({})).await;
        assert_eq!(text(&answer), expected, "{}", replicas.logs());
    }
    let listed = client.call(&replicas.all[1], "session_list", json!({})).await;
    assert!(listed["result"].is_object(), "{listed}");
    let ended = client.call(&replicas.all[0], "session_end", json!({ "session_id": handle })).await;
    assert_ne!(ended["result"]["isError"], true, "{ended}");
    drop(replicas);
    gone(&mark).await;
}

/// A connection that was switched to a session which another replica holds ends at any replica, with both of its sessions,
/// and no copy of it at another replica brings it back.
#[tokio::test]
async fn connection_ends_at_all_replicas_after_a_switch() {
    let (mark, database) = (mark("cluster-delete"), Database::redis().await);
    let mut settings = settings(database.url());
    settings["session_tools"] = json!("all");
    let replicas = Replicas::with(&json!({ "local": stdio(&mark, &[]) }), &settings).await;
    let client = replicas.all[0].client("local").await;
    // Every replica has a copy of the connection.
    for expected in ["1", "2", "3"] {
        assert_eq!(replicas.count(&client).await, expected);
    }
    let body = crate::modern::request(&json!(1), "tools/call", json!({ "name": "count" }));
    let mut headers = crate::modern::headers(&body);
    headers.push(("stayput-session".to_owned(), "key:other".to_owned()));
    let url = replicas.all[1].at("local");
    let held = crate::modern::post(&url, &headers, &body.to_string()).await.message().await;
    assert_eq!(text(&held), "1");
    let name = json!({ "session_id": "key:other" });
    let switched = client.call(&replicas.all[2], "session_switch", name).await;
    assert_ne!(switched["result"]["isError"], true, "{switched}");
    assert_eq!(client.text(&replicas.all[0], "count").await, "2");
    assert_eq!(client.delete(&replicas.all[2]).await, 200, "{}", replicas.logs());
    for replica in &replicas.all {
        let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": { "name": "count", "arguments": {} } });
        assert_eq!(
            client.send(replica, &call.to_string()).await.status,
            404,
            "{}",
            replicas.logs()
        );
        assert_eq!(client.delete(replica).await, 404);
    }
    // The session that was made with the connection has ended; the one with a key has not.
    let listed = list_sessions(&replicas.all[0]);
    assert_eq!(listed.lines().count(), 2, "a headline and one session: {listed}");
    let body = crate::modern::request(&json!(2), "tools/call", json!({ "name": "count" }));
    let again = crate::modern::post(&url, &headers, &body.to_string()).await.message().await;
    assert_eq!(text(&again), "3", "{}", replicas.logs());
    drop(replicas);
    gone(&mark).await;
}

/// An operator sees and ends a session through any replica.
#[tokio::test]
async fn session_is_shown_and_ended_through_any_replica() {
    let (mark, database) = (mark("cluster-admin"), Database::postgres().await);
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_stayput"));
    let made = program.args(["token", "ann", "--admin", "--json"]).output().unwrap().stdout;
    let made: Value = serde_json::from_slice(&made).unwrap();
    let (token, hash) = (made["token"].as_str().unwrap(), &made["hash"]);
    let mut settings = settings(database.url());
    settings["auth"] = json!({ "tokens": { "ann": { "hash": hash, "admin": true } } });
    let replicas = Replicas::with(&json!({ "local": stdio(&mark, &[]) }), &settings).await;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", &*bearer), ("stayput-session", "key:chat")];
    let call = async |turn: usize| {
        let body = crate::modern::request(&json!(1), "tools/call", json!({ "name": "count" }));
        let mut all = crate::modern::headers(&body);
        all.extend(headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let url = replicas.all[turn % 3].at("local");
        crate::modern::post(&url, &all, &body.to_string()).await.message().await
    };
    for turn in 0..3 {
        let answer = call(turn).await;
        assert_eq!(text(&answer), (turn + 1).to_string());
    }
    let ask = async |method: Method, turn: usize, path: &str| {
        let url = format!("{}/admin/sessions{path}", replicas.all[turn].url);
        send(method, &url, &headers[..1], "").await.unwrap()
    };
    // The registry of the gateways is a session, too, and no gateway could start without it.
    for path in ["/00000000-0000-7000-8000-000000000001", "/0000"] {
        assert_eq!(ask(Method::GET, 0, path).await.status, 404, "{path}");
        assert_eq!(ask(Method::DELETE, 0, path).await.status, 404, "{path}");
    }
    let mut holders = Vec::new();
    let mut id = String::new();
    for turn in 0..3 {
        let page = ask(Method::GET, turn, "").await;
        assert_eq!(page.header("cache-control"), "no-store");
        let page = page.json().await;
        let sessions = page["sessions"].as_array().unwrap();
        assert_eq!(sessions.len(), 1, "{page}");
        id = sessions[0]["id"].as_str().unwrap().to_owned();
        let shown = ask(Method::GET, turn, &format!("/{id}")).await.json().await;
        assert_eq!(shown["links"][0]["server"], "local", "{shown}");
        holders.push(shown["holder"].as_str().unwrap().to_owned());
    }
    holders.dedup();
    assert_eq!(holders.len(), 1, "{holders:?}");
    let link = format!("/{id}/links/local");
    assert_eq!(ask(Method::DELETE, 1, &link).await.status, 204, "{}", replicas.logs());
    let told = call(2).await;
    assert_eq!(told["result"]["_meta"]["dev.stayput/state"]["state"], "lost", "{told}");
    assert_eq!(text(&call(1).await), "1");
    assert_eq!(ask(Method::DELETE, 1, &format!("/{id}")).await.status, 204);
    assert_eq!(ask(Method::DELETE, 2, &format!("/{id}")).await.status, 410);
    drop(replicas);
    gone(&mark).await;
}

/// `stayput sessions --all` at any replica lists all sessions with their holders.
#[tokio::test]
async fn list_of_sessions_names_the_holders() {
    let (mark, database) = (mark("cluster-holders"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let replicas = Replicas::start(&servers, database.url()).await;
    for replica in &replicas.all[..2] {
        let client = replica.client("local").await;
        assert_eq!(client.text(replica, "count").await, "1");
    }
    let text = list_sessions(&replicas.all[2]);
    let mut lines = text.lines();
    assert!(lines.next().is_some_and(|it| it.trim_end().ends_with("HOLDER")), "{text}");
    let holders: Vec<_> = lines.filter_map(|line| line.split_whitespace().last()).collect();
    assert!(holders.len() == 2 && holders[0] != holders[1], "{text}");
    drop(replicas);
    gone(&mark).await;
}

//! Spare processes of the gateway: started before a session needs them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::{collections::BTreeSet, path::PathBuf, process::Command};

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::until_some;
use stayput_testkit::{mcp::send, processes};
use support::{Gateway, gone, mark, stdio, until};

/// Entry of the test server with these spares.
fn warmed(mark: &str, warm: &Value) -> Value {
    let mut server = stdio(mark, &[]);
    server["stayput"] = json!({ "warm": warm });
    server
}

/// Number of ready spares of the server `test` in the metrics.
async fn spares(gateway: &Gateway) -> usize {
    let url = format!("{}/metrics", gateway.url);
    let answer = send(Method::GET, &url, &[], "").await.unwrap();
    let page = String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap();
    let sample = r#"stayput_spares{server="test"} "#;
    let count = page.lines().find_map(|line| line.strip_prefix(sample));
    count.unwrap_or_else(|| panic!("no {sample} in {page}")).parse().unwrap()
}

/// Waits until the gateway has this many spares, and no other process with this mark beside `others`.
async fn ready(gateway: &Gateway, mark: &str, count: usize, others: usize) -> BTreeSet<u32> {
    let look = async || {
        let found: BTreeSet<u32> = processes::with_token(mark).into_iter().collect();
        (spares(gateway).await == count && found.len() == count + others).then_some(found)
    };
    until_some(&format!("there are {count} spares"), look).await
}

/// Output of `stayput sessions` with these arguments.
fn sessions(gateway: &Gateway, arguments: &[&str]) -> String {
    let folder = gateway.folder.path();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.arg("sessions").args(arguments).current_dir(folder);
    let output = command.env("XDG_DATA_HOME", folder.join("data")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Spares are started with the gateway, without a client. Each serves one session and is replaced. Metrics and
/// `stayput sessions` show them, and a graceful stop ends them.
#[tokio::test]
async fn each_spare_serves_one_session_and_is_replaced() {
    let mark = mark("spares");
    let mut gateway = Gateway::start(json!({ "test": warmed(&mark, &json!(2)) })).await;
    let first = ready(&gateway, &mark, 2, 0).await;
    let listed: Value = serde_json::from_str(&sessions(&gateway, &["--json"])).unwrap();
    let pids: BTreeSet<u32> = listed.as_array().unwrap().iter().map(spare_pid).collect();
    assert_eq!(pids, first);
    assert!(sessions(&gateway, &["ls", "--server", "test"]).contains("spare"));
    assert_eq!(sessions(&gateway, &["ls", "--state", "idle"]).trim(), "there are no sessions");
    let mut used = BTreeSet::new();
    for others in 1..=4 {
        let waiting = processes::with_token(&mark);
        let client = gateway.client("test").await;
        assert_eq!(client.text(&gateway, "count").await, "1", "a session has the state of another");
        let pid: u32 = client.text(&gateway, "pid").await.parse().unwrap();
        assert!(waiting.contains(&pid), "session {others} has not taken a spare");
        assert!(used.insert(pid), "two sessions share a spare");
        ready(&gateway, &mark, 2, others).await;
    }
    assert!(gateway.stop().success());
    assert!(processes::with_token(&mark).is_empty());
}

fn spare_pid(row: &Value) -> u32 {
    assert_eq!((&row["state"], &row["id"]), (&json!("spare"), &Value::Null), "{row}");
    assert_eq!(row["servers"], json!(["test"]));
    assert!(row["links"][0]["memory_bytes"].as_u64().unwrap() > 0, "{row}");
    row["links"][0]["pid"].as_u64().unwrap().try_into().unwrap()
}

/// A reload changes the number of spares and keeps the link of a session. Spares of a changed command are replaced,
/// and those of a removed server end.
#[tokio::test]
async fn reload_changes_the_number_of_spares() {
    let (mark, next) = (mark("spares-reload"), mark("spares-next"));
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    for count in [2, 3, 1] {
        gateway.configure(json!({ "test": warmed(&mark, &json!({ "count": count })) }));
        ready(&gateway, &mark, count, 1).await;
    }
    assert_eq!(client.text(&gateway, "count").await, "2", "the link has gone with the spares");
    gateway.configure(json!({ "test": warmed(&next, &json!(2)) }));
    ready(&gateway, &next, 2, 0).await;
    gone(&mark).await;
    gateway.configure(json!({ "other": stdio(&mark, &[]) }));
    gone(&next).await;
}

/// A spare may use `${session.dir}`: its folder becomes that of the session, and goes with it.
#[tokio::test]
async fn folder_of_a_spare_becomes_that_of_the_session() {
    let mark = mark("spares-folder");
    let mut server = warmed(&mark, &json!(1));
    server["env"] = json!({ "DIR": "${session.dir}" });
    let gateway = Gateway::start(json!({ "test": server })).await;
    let mut folders = BTreeSet::new();
    for others in 0..3 {
        let waiting = ready(&gateway, &mark, 1, others).await;
        let client = gateway.client("test").await;
        let pid: u32 = client.text(&gateway, "pid").await.parse().unwrap();
        assert!(waiting.contains(&pid), "the spare was not taken");
        let told = client.call(&gateway, "env", json!({ "name": "DIR" })).await;
        let folder = PathBuf::from(told["result"]["content"][0]["text"].as_str().unwrap());
        std::fs::write(folder.join("file"), "x").unwrap();
        assert!(folders.insert(folder.clone()), "two sessions share a folder");
        if others == 0 {
            continue;
        }
        assert_eq!(client.delete(&gateway).await, 200);
        until("end of the folder", || !folder.exists()).await;
        break;
    }
}

/// Spares count as processes, and are ended first when a session needs the room.
#[tokio::test]
async fn spare_makes_room_for_a_session_of_another_server() {
    let (mark, other) = (mark("spares-room"), mark("spares-other"));
    let servers = json!({ "test": warmed(&mark, &json!(9)), "other": stdio(&other, &[]) });
    let limits = json!({ "limits": { "processes": 3 } });
    let gateway = Gateway::with(servers, limits).await;
    ready(&gateway, &mark, 3, 0).await;
    let mut clients = Vec::new();
    for left in [2, 1] {
        let client = gateway.client("other").await;
        assert_eq!(client.text(&gateway, "count").await, "1");
        clients.push(client);
        assert!(processes::with_token(&mark).len() <= left);
    }
    for client in &clients {
        assert_eq!(client.text(&gateway, "count").await, "2", "a session had to go for a spare");
    }
}

/// Invariant 5: no spare outlives a killed gateway.
#[tokio::test]
async fn spares_end_with_a_killed_gateway() {
    let mark = mark("spares-killed");
    let mut gateway = Gateway::start(json!({ "test": warmed(&mark, &json!(3)) })).await;
    ready(&gateway, &mark, 3, 0).await;
    gateway.kill();
    gone(&mark).await;
}

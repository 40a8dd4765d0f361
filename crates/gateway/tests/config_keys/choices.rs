//! Keys of a server's `stayput` object.

use serde_json::json;
use stayput_testkit::{Authority, mcp::TestServer, processes};

use crate::{
    kit::{Peer, Stage, call, call_as, count, token},
    support::{Gateway, gone, mark, stdio, until},
};

/// Observer: whether two connections share a process.
async fn sharing(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let mut pids = Vec::new();
    for _ in 0..2 {
        let client = Peer::default().connect(&gateway).await.unwrap();
        pids.push(client.call(&gateway, "pid", json!({})).await);
    }
    if pids[0] == pids[1] { "shared" } else { "apart" }.to_owned()
}

/// Observer: a call after the death of the process.
async fn after_death(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let client = Peer::default().connect(&gateway).await.unwrap();
    let pid = client.call(&gateway, "pid", json!({})).await;
    let killed = std::process::Command::new("kill").args(["-KILL", &pid]).status().unwrap();
    assert!(killed.success());
    let process = std::path::Path::new("/proc").join(&pid);
    until("end of the process", || !process.exists()).await;
    client.call(&gateway, "count", json!({})).await
}

/// Observer: whether the process is gone before both steps of a grace of three seconds are over.
async fn end(stage: Stage, mark: &str) -> String {
    let gateway = stage.gateway().await;
    let client = gateway.client("test").await;
    client.text(&gateway, "count").await;
    assert_eq!(processes::with_token(mark).len(), 1);
    let start = tokio::time::Instant::now();
    assert_eq!(client.delete(&gateway).await, 200);
    gone(mark).await;
    if start.elapsed().as_secs() < 6 { "soon" } else { "later" }.to_owned()
}

/// Observer: whether the tool `count` has an argument for the session.
async fn argument(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let client = Peer::default().connect(&gateway).await.unwrap();
    let tools = client.tools(&gateway).await;
    let count = tools.iter().find(|tool| tool["name"] == "count").unwrap();
    count["inputSchema"]["properties"]["session_id"].is_object().to_string()
}

/// Observer: whether one of several sessions gets a process that was there before it.
async fn started_before(stage: Stage, mark: &str) -> String {
    let gateway = stage.gateway().await;
    for _ in 0..20 {
        let before = processes::with_token(mark);
        let client = gateway.client("test").await;
        let pid: u32 = client.text(&gateway, "pid").await.parse().unwrap();
        if before.contains(&pid) {
            return "before".to_owned();
        }
    }
    "after".to_owned()
}

/// Observer: whether the process that waits for a session is replaced by another one.
async fn replaced(stage: Stage, mark: &str) -> String {
    let _gateway = stage.gateway().await;
    let first = loop {
        if let Some(pid) = processes::with_token(mark).first() {
            break *pid;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    for _ in 0..150 {
        if !processes::with_token(mark).contains(&first) {
            return "replaced".to_owned();
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    "kept".to_owned()
}

keys! {
    "server.stayput.warm" warm_starts_processes_before_sessions |key| {
        let mark = mark("key-warm_starts_processes_before_sessions");
        let seen = async |stage| started_before(stage, &mark).await;
        key.set(json!(1)).shows(seen, ["before", "after"]).await;
    }
    "server.stayput.warm.count" warm_count_starts_processes_before_sessions |key| {
        let mark = mark("key-warm_count_starts_processes_before_sessions");
        let seen = async |stage| started_before(stage, &mark).await;
        key.set(json!(1)).shows(seen, ["before", "after"]).await;
    }
    "server.stayput.warm.max_age" warm_max_age_replaces_unused_processes |key| {
        let mark = mark("key-warm_max_age_replaces_unused_processes");
        let key = key.on(&json!({ "mcpServers": { "test": { "stayput": { "warm": { "count": 1 } } } } }));
        let seen = async |stage| replaced(stage, &mark).await;
        key.set(json!("50ms")).shows(seen, ["replaced", "kept"]).await;
    }
    "server.stayput.isolation" isolation_decides_who_shares_a_process |key| {
        key.set(json!("shared")).shows(sharing, ["shared", "apart"]).await;
    }
    "server.stayput.era" era_is_that_of_the_link |key| {
        let server = TestServer::http(&[]).await;
        let spoken = async |stage| {
            let before = server.counted("initialize").await;
            assert_eq!(count(stage).await, "1");
            if server.counted("initialize").await > before { "legacy" } else { "modern" }.to_owned()
        };
        key.url(&server).set(json!("modern")).shows(spoken, ["modern", "legacy"]).await;
    }
    "server.stayput.timeout" timeout_ends_a_call |key| {
        let slow = async |stage| {
            let said = call(stage, "slow", json!({ "ms": 1_500 })).await;
            if said == "error" { said } else { "done".to_owned() }
        };
        key.set(json!("300ms")).shows(slow, ["error", "done"]).await;
    }
    "server.stayput.startup_timeout" startup_timeout_ends_a_start |key| {
        let started = async |stage| (count(stage).await == "1").to_string();
        let key = key.server(&["--startup-ms", "1500"]);
        key.set(json!("300ms")).shows(started, ["false", "true"]).await;
    }
    "server.stayput.grace" grace_is_the_time_for_an_end |key| {
        let mark = mark("key-grace_is_the_time_for_an_end");
        let ended = async |stage| end(stage, &mark).await;
        let key = key.server(&["--ignore-eof", "--ignore-term"]);
        key.set(json!("50ms")).instead_of(json!("3s")).shows(ended, ["soon", "later"]).await;
    }
    "server.stayput.on_loss" on_loss_repeats_a_call_that_did_not_run |key| {
        key.set(json!("restart")).shows(after_death, ["1", "error"]).await;
    }
    "server.stayput.inherit" inherit_passes_a_variable_on |key| {
        let (name, value) = ("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR"));
        let variable = async |stage| call(stage, "env", json!({ "name": name })).await;
        key.set(json!([name])).shows(variable, [value, ""]).await;
    }
    "server.stayput.delete_on_end" delete_on_end_deletes_the_session_of_the_server |key| {
        let server = TestServer::http(&["--era", "legacy"]).await;
        let deleted = async |stage: Stage| {
            let before = server.counted("deletes").await;
            let mut gateway = stage.gateway().await;
            let client = gateway.client("test").await;
            client.text(&gateway, "count").await;
            assert_eq!(client.delete(&gateway).await, 200);
            assert!(gateway.stop().success());
            (server.counted("deletes").await > before).to_string()
        };
        key.url(&server).set(json!(false)).shows(deleted, ["false", "true"]).await;
    }
    "server.stayput.ca_file" ca_file_is_trusted |key| {
        let (authority, mark) = (Authority::default(), mark("key-ca"));
        let tls = json!({ "cert": authority.server_cert(), "key": authority.server_key() });
        let server = Gateway::with(json!({ "test": stdio(&mark, &[]) }), json!({ "tls": tls })).await;
        let entry = json!({ "command": null, "args": null, "url": server.at("test") });
        let key = key.on(&json!({ "mcpServers": { "test": entry } }));
        key.set(json!(authority.file())).shows(count, ["1", "error"]).await;
    }
    "server.stayput.tools.allow" allow_leaves_other_tools_out |key| {
        key.set(json!(["echo"])).shows(count, ["error", "1"]).await;
    }
    "server.stayput.tools.deny" deny_leaves_a_tool_out |key| {
        key.set(json!(["count"])).shows(count, ["error", "1"]).await;
    }
    "server.stayput.for" for_hides_a_server_from_others |key| {
        let (bearer, hash) = token("ann");
        let of_ann = async |stage| call_as(stage, &Peer::bearer(&bearer), "count", json!({})).await;
        let key = key.with(&json!({ "auth": { "tokens": { "ann": hash } } }));
        key.set(json!({ "team": "ops" })).shows(of_ann, ["404", "1"]).await;
    }
    "server.stayput.handles" handles_adds_an_argument |key| {
        key.set(json!("always")).shows(argument, ["true", "false"]).await;
    }
}

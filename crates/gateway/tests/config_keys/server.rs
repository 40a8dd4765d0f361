//! Keys of a server's entry that other programs have, too.

use serde_json::json;
use stayput_testkit::{mcp::TestServer, program};

use crate::{
    kit::{call, count, greet},
    support::{mark, stdio},
};

keys! {
    "mcpServers" mcp_servers_lists_servers |key| {
        let other = json!({ "mcpServers": null, "servers": { "other": stdio("x", &[]) } });
        let servers = json!({ "test": stdio("x", &[]) });
        key.on(&other).set(servers).shows(greet, ["200", "404"]).await;
    }
    "servers" servers_lists_servers |key| {
        let other = json!({ "mcpServers": { "test": null, "other": stdio("x", &[]) } });
        let servers = json!({ "test": stdio("x", &[]) });
        key.on(&other).set(servers).shows(greet, ["200", "404"]).await;
    }
    "server.type" type_chooses_the_transport |key| {
        let server = TestServer::http(&["--era", "legacy"]).await;
        key.url(&server).set(json!("sse")).shows(count, ["error", "1"]).await;
    }
    "server.command" command_is_started |key| {
        key.set(json!(program("stayput-testserver"))).shows(count, ["1", "no start"]).await;
    }
    "server.args" args_reach_the_process |key| {
        let args = json!(["stdio", "--era", "legacy", "--mark", mark("key-args"), "--tool", "t"]);
        let plain = json!(["stdio", "--era", "legacy", "--mark", mark("key-args")]);
        let tool = async |stage| call(stage, "t", json!({})).await;
        key.set(args).instead_of(plain).shows(tool, ["t", "error"]).await;
    }
    "server.env" env_reaches_the_process |key| {
        let variable = async |stage| call(stage, "env", json!({ "name": "KEY" })).await;
        key.set(json!({ "KEY": "x" })).shows(variable, ["x", ""]).await;
    }
    "server.envFile" env_file_reaches_the_process |key| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("env");
        std::fs::write(&path, "KEY=x\n").unwrap();
        let variable = async |stage| call(stage, "env", json!({ "name": "KEY" })).await;
        key.set(json!(path)).shows(variable, ["x", ""]).await;
    }
    "server.cwd" cwd_is_the_folder_of_the_process |key| {
        let is_root = async |stage| (call(stage, "cwd", json!({})).await == "/").to_string();
        key.set(json!("/")).shows(is_root, ["true", "false"]).await;
    }
    "server.url" url_is_the_server |key| {
        let server = TestServer::http(&["--era", "legacy"]).await;
        let none = json!({ "mcpServers": { "test": { "command": null, "args": null } } });
        key.on(&none).set(json!(server.url())).shows(count, ["1", "no start"]).await;
    }
    "server.headers" headers_reach_the_server |key| {
        let server = TestServer::http(&["--era", "legacy"]).await;
        let header = async |stage| call(stage, "header", json!({ "name": "x-key" })).await;
        key.url(&server).set(json!({ "X-Key": "x" })).shows(header, ["x", ""]).await;
    }
    "server.disabled" disabled_leaves_the_server_out |key| {
        key.set(json!(true)).shows(greet, ["404", "200"]).await;
    }
}

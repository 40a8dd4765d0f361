//! Messages for people: each names the likely mistake and what to do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::{
    io::{Read, Write},
    net::TcpListener,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use support::Gateway;
use tempfile::TempDir;

/// Runs the program in a folder with a configuration.
fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(arguments).current_dir(folder.path()).stdin(Stdio::null());
    command.env("XDG_DATA_HOME", folder.path().join("data")).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks these servers, and returns the findings of each by its name.
fn check(servers: &Value) -> impl Fn(&str) -> String + use<> {
    let folder = TempDir::new().unwrap();
    let config = json!({ "mcpServers": servers }).to_string();
    std::fs::write(folder.path().join("mcp.json"), config).unwrap();
    let output = run(&folder, &["check", "--json"]);
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
    move |name| {
        let mut servers = checked["servers"].as_array().unwrap().iter();
        let server = servers.find(|server| server["server"] == name);
        server.unwrap_or_else(|| panic!("{checked}"))["findings"][0]["what"].to_string()
    }
}

#[test]
fn command_that_is_not_found_gets_the_likely_remedy() {
    let says = check(&json!({
        "line": { "command": "npx -y @playwright/mcp --isolated" },
        "script": { "command": "./server.sh" },
        "program": { "command": "stayput-no-such-program" },
    }));
    let line = says("line");
    assert!(line.contains("give `npx` as the command, and the rest as arguments"), "{line}");
    let script = says("script");
    assert!(script.contains("there is no file `./server.sh`"), "{script}");
    assert!(!script.contains("PATH"), "{script}");
    let program = says("program");
    assert!(program.contains("on the PATH") && program.contains("install it"), "{program}");
}

#[test]
fn misspelt_expansion_suggests_the_nearest_name() {
    let says = check(&json!({ "it": { "command": "x", "args": ["${sesion.dir}"] } }));
    let it = says("it");
    assert!(it.contains("the most similar one is ${session.dir}"), "{it}");
}

/// A server with OAuth metadata wants a token, which the user has to get.
#[test]
fn server_that_wants_oauth_is_named_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let challenge = "Bearer resource_metadata=\"http://127.0.0.1/meta\"";
            let _ = stream.write_all(
                format!(
                    "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: {challenge}\r\n\
                     content-length: 0\r\nconnection: close\r\n\r\n"
                )
                .as_bytes(),
            );
        }
    });
    let it = check(&json!({ "it": { "url": url } }))("it");
    assert!(it.contains("HTTP 401") && it.contains("it wants OAuth"), "{it}");
    assert!(it.contains("the header `Authorization`"), "{it}");
}

#[test]
fn configuration_that_is_missing_is_told_in_words() {
    let folder = TempDir::new().unwrap();
    let output = run(&folder, &["serve", "--config", "nowhere.json"]);
    let said = errors(&output);
    assert!(said.contains("nowhere.json: the file does not exist; check its name"), "{said}");
    assert!(!said.contains("entity"), "{said}");
}

/// A call of an unknown tool or server lists those that exist.
#[tokio::test]
async fn call_of_an_unknown_name_lists_the_known_ones() {
    let notes = json!({ "command": "${stayput}", "args": ["demo-server"] });
    let gateway = Gateway::start(json!({ "notes": notes })).await;
    let tool = run(&gateway.folder, &["call", "notes", "nosuch"]);
    assert_eq!(tool.status.code(), Some(1));
    let said = errors(&tool);
    let names = "its tools are note_add, note_list, count, whoami";
    assert!(said.contains("has no tool `nosuch`") && said.contains(names), "{said}");
    let server = run(&gateway.folder, &["call", "nosuch", "count"]);
    assert!(errors(&server).contains("/mcp/notes"), "{}", errors(&server));
    let broken = run(&gateway.folder, &["call", "notes", "note_add"]);
    assert!(!errors(&broken).contains("its tools are"), "{}", errors(&broken));
}

#[tokio::test]
async fn tools_are_listed_as_they_are_called() {
    let notes = json!({ "command": "${stayput}", "args": ["demo-server"] });
    let gateway = Gateway::start(json!({ "notes": notes })).await;
    let one = run(&gateway.folder, &["tools", "notes"]);
    let said = String::from_utf8(one.stdout).unwrap();
    assert!(said.starts_with("note_add text=…\n    Writes a note"), "{said}");
    let all = run(&gateway.folder, &["tools", "--json"]);
    let tools: Vec<Value> = serde_json::from_slice(&all.stdout).unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["notes__note_add", "notes__note_list", "notes__count", "notes__whoami"]);
}

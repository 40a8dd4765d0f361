//! Log of `stayput serve`: level, format, variables, and the absence of secrets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use support::{Gateway, mark, stdio, until};
use tempfile::TempDir;

/// Folder with the configuration of a gateway that has one server and never starts it.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let config = json!({
        "mcpServers": { "test": { "command": "true", "env": { "KEY": "s3cr3t-of-env" } } },
        "stayput": { "store": "memory:", "listen": "127.0.0.1:0" },
    });
    std::fs::write(folder.path().join("stayput.json"), config.to_string()).unwrap();
    folder
}

/// Command that starts a gateway and stops it as soon as it listens, because its standard input has ended.
fn serve(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(["serve", "--stop-with-stdin"]).args(arguments).current_dir(folder);
    command.env("XDG_DATA_HOME", folder.join("data")).env_remove("RUST_LOG");
    command.stdin(Stdio::null());
    command
}

fn log(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", log(output));
    log(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Without a terminal each line is a JSON object with time, level, sentence and fields.
#[test]
fn log_is_json_without_a_terminal() {
    let folder = folder();
    let lines = lines(&serve(folder.path(), &[]).output().unwrap());
    let listening = lines.iter().find(|it| it["event"] == "listening").unwrap();
    assert_eq!(listening["level"], "INFO");
    assert!(listening["timestamp"].as_str().unwrap().ends_with('Z'), "{listening}");
    assert!(listening["message"].as_str().unwrap().contains(listening["url"].as_str().unwrap()));
    assert!(lines.iter().any(|it| it["event"] == "serving" && it["server"] == "test"));
    assert!(lines.iter().all(|it| it["target"].as_str().unwrap().starts_with("stayput")));
}

/// On a terminal the log is text with time and colour. `NO_COLOR` turns the colour off.
#[cfg(target_os = "linux")]
#[test]
fn log_is_text_with_colour_on_a_terminal() {
    let folder = folder();
    let on_terminal = |no_color: &str| {
        let mut command = Command::new("script");
        let program = env!("CARGO_BIN_EXE_stayput");
        let serve = format!("{program} serve --stop-with-stdin < /dev/null");
        command.args(["--quiet", "--return", "--command", &serve, "/dev/null"]);
        command.current_dir(folder.path()).stdin(Stdio::null()).env("NO_COLOR", no_color);
        command.env("XDG_DATA_HOME", folder.path().join("data")).env_remove("RUST_LOG");
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        text
    };
    let coloured = on_terminal("");
    assert!(coloured.contains("\u{1b}[32m INFO\u{1b}[0m"), "{coloured}");
    let plain = on_terminal("1");
    let line = plain.lines().find(|it| it.contains("stayput listens on http://")).unwrap();
    let (time, rest) =
        line.split_once("Z  INFO stayput listens").unwrap_or_else(|| panic!("{line}"));
    assert!(time.starts_with("20") && time.len() == 23 && !rest.contains("event="), "{line}");
    assert!(!plain.contains('\u{1b}') && plain.contains("claude mcp add"), "{plain}");
}

/// `--log` comes before `RUST_LOG`, which comes before the default.
#[test]
fn log_level_is_set_by_option_and_variable() {
    let folder = folder();
    let messages = |arguments: &[&str], directives: &str| {
        let output = serve(folder.path(), arguments).env("RUST_LOG", directives).output().unwrap();
        lines(&output).len()
    };
    let default = messages(&[], "");
    assert_eq!(messages(&["--log", "error"], ""), 0);
    assert_eq!(messages(&[], "error"), 0);
    assert_eq!(messages(&[], "stayput::app=info"), default);
    assert_eq!(messages(&["--log", "info"], "error"), default);
    assert_eq!(messages(&["--log", "off"], "trace"), 0);
}

/// Directives that cannot be read do not stop the gateway: the log says so.
#[test]
fn unreadable_directives_are_warned_about() {
    let folder = folder();
    let output = serve(folder.path(), &[]).env("RUST_LOG", "stayput=loud").output().unwrap();
    let lines = lines(&output);
    assert_eq!(lines[0]["level"], "WARN");
    assert!(lines[0]["message"].as_str().unwrap().starts_with("RUST_LOG cannot be read"));
    assert!(lines.iter().any(|it| it["event"] == "listening"), "{lines:?}");
}

#[test]
fn unknown_level_is_refused_with_a_sentence() {
    let folder = folder();
    let output = serve(folder.path(), &["--log", "loud"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = log(&output);
    assert!(said.contains("the level is off, error, warn, info, debug or trace"), "{said}");
}

/// R028, R055: with `--log debug` a call is logged inside of its spans, which name session, server and tool, and
/// `initialize` logs the session id. Handles, arguments and environment values do not appear.
#[tokio::test]
async fn debug_log_has_the_spans_of_a_call() {
    let mark = mark("spans");
    let mut server = stdio(&mark, &[]);
    server["env"]["KEY"] = json!("s3cr3t-of-env");
    let arguments = &["--log", "debug", "--log-format", "json"];
    let servers = json!({ "test": server });
    let gateway = Gateway::with_arguments(servers, json!({}), arguments).await;
    let client = gateway.client("test").await;
    client.call(&gateway, "echo", json!({ "fill": "s3cr3t-of-argument" })).await;
    let events = |message: &str| -> Vec<Value> {
        let log = gateway.log();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|it| it["message"] == message).collect()
    };
    until("answer", || !events("answered").is_empty()).await;

    let initialize = &events("initialize")[0];
    assert_eq!((&initialize["server"], &initialize["level"]), (&json!("test"), &json!("DEBUG")));
    let id = initialize["session"].as_str().unwrap();
    let answered = events("answered");
    let call = json!({ "name": "call", "method": "tools/call", "tool": "echo" });
    let answered = answered.iter().find(|it| it["spans"][2] == call).unwrap();
    assert_eq!(answered["spans"][0], json!({ "name": "session", "id": id }), "{answered}");
    let link = json!({ "name": "link", "server": "test", "generation": "0", "era": "legacy" });
    assert_eq!(answered["spans"][1], link, "{answered}");
    assert!(!events("child started").is_empty());
    let log = gateway.log();
    assert!(!log.contains("s3cr3t") && !log.contains(&client.id), "{log}");
}

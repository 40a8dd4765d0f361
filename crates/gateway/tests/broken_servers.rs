//! Invalid entries: each disables its own server only, and is reported.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::process::{Command, Output};

use serde_json::{Value, json};
use support::{Gateway, until};
use tempfile::TempDir;

fn notes() -> Value {
    json!({ "command": "${stayput}", "args": ["demo-server"] })
}

/// Servers of which only `good` is usable.
fn mixed() -> Value {
    json!({
        "good": notes(),
        "unset": { "command": "x", "env": { "KEY": "${STAYPUT_TEST_NOT_SET}" } },
        "bad": { "comand": "x" },
        "misplaced": { "command": "x", "isolation": "shared" },
        "admin": notes(),
        "unseen": { "command": "x", "stayput": { "for": { "team": "a" } } },
        "missing": { "command": "stayput-no-such-program" },
        "line": { "command": "sh -c true" },
        "script": { "command": "./server.sh" },
    })
}

/// Sentence of each broken one.
const SENTENCES: [(&str, &str); 5] = [
    ("unset", "STAYPUT_TEST_NOT_SET is not set"),
    ("bad", "the most similar one is \"command\""),
    ("misplaced", "move it into the \"stayput\" object of the server"),
    ("admin", "rename the server"),
    ("unseen", "no client has claims"),
];

/// Runs the program with a configuration, and returns its output.
fn run(arguments: &[&str], config: &Value) -> Output {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("stayput.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(arguments).arg("--config").arg(&file).stdin(std::process::Stdio::null());
    command.env("XDG_DATA_HOME", folder.path().join("data")).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// R029: one line per server says what is wrong with it; the others are served.
#[tokio::test]
async fn broken_entry_disables_only_its_server() {
    let gateway = Gateway::start(mixed()).await;
    // Servers that cannot start come before the disabled ones, in one piece of the log.
    until("line for every server", || gateway.log().contains("  unseen: disabled")).await;
    let log = gateway.log();
    for (name, sentence) in SENTENCES {
        let line = log.lines().find(|line| line.contains(&format!("  {name}: disabled: ")));
        let line = line.unwrap_or_else(|| panic!("{name}: {log}"));
        assert!(line.contains(sentence), "{line}");
    }
    for (name, sentence) in [
        ("missing", "no program named `stayput-no-such-program` was found on the PATH"),
        ("line", "give `sh` as the command, and the rest as arguments"),
        ("script", "there is no file `./server.sh`"),
    ] {
        let line = log.lines().find(|line| line.contains(&format!("  {name}: http")));
        assert!(line.is_some_and(|line| line.contains(sentence)), "{log}");
    }
    let client = gateway.client("good").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    let answer = gateway.post("bad", &[], "{}").await;
    assert_eq!(answer.status, 404);
}

/// A server that exits at its start and a dead URL are found in the background, and shown in the log and by `status`.
#[tokio::test]
async fn servers_that_do_not_start_are_found_in_the_background() {
    let servers = json!({
        "good": notes(),
        "exits": { "command": "sh", "args": ["-c", "echo the key is missing >&2; exit 3"] },
        "dead": { "url": "http://127.0.0.1:1/mcp" },
    });
    let gateway = Gateway::with_arguments(servers, json!({}), &["--probe", "always"]).await;
    let parts = [
        "  good: ready, 4 tools",
        "  exits: cannot be used: the server `exits` exited with code 3 before it was ready",
        "  dead: cannot be used: the server `dead` cannot be reached",
    ];
    until("line for every server", || parts.iter().all(|part| gateway.log().contains(part))).await;
    assert!(gateway.log().contains("the key is missing"), "{}", gateway.log());
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(["status", "--json", "--config"]).arg(gateway.config());
    let status: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let server = |name: &str| {
        let mut all = status["servers"].as_array().unwrap().iter();
        all.find(|it| it["name"] == name).unwrap()
    };
    assert_eq!(server("good")["state"], "ready", "{status}");
    for (name, part) in [("exits", "exited with code 3"), ("dead", "cannot be reached")] {
        assert_eq!(server(name)["state"], "failed", "{status}");
        let message = server(name)["last_error"]["message"].as_str().unwrap();
        assert!(message.contains(part), "{message}");
    }
    let client = gateway.client("good").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
}

/// The log has one line per server, and says once how a program reaches one.
#[tokio::test]
async fn banner_has_one_line_per_server() {
    let gateway =
        Gateway::start(json!({ "a": notes(), "b": notes(), "gone": { "command": "./gone" } }))
            .await;
    until("last line", || gateway.log().contains("your own program")).await;
    let log = gateway.log();
    let lines = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    for (name, more) in
        [("a", ""), ("b", ""), ("gone", ", cannot start: there is no file `./gone`")]
    {
        assert_eq!(lines(&format!("  {name}: {}/mcp/{name}{more}", gateway.url)), 1, "{log}");
    }
    assert_eq!(lines(&format!("  your own program: {}/mcp/a/~NAME", gateway.url)), 1, "{log}");
    assert_eq!(lines("~NAME"), 1, "{log}");
}

/// The banner has URLs that a client can use: those of `public_url`, and else of this machine instead of `0.0.0.0`.
#[test]
fn banner_has_urls_that_clients_can_use() {
    let hash = format!("sha256:{}", "0".repeat(64));
    for (public, beginning) in [
        (json!(null), "http://127.0.0.1:"),
        (json!("https://mcp.example.com/"), "https://mcp.example.com/mcp"),
    ] {
        let mut settings = json!({ "listen": "0.0.0.0:0", "store": "memory:", "auth": { "tokens": { "ann": hash } } });
        if public.is_string() {
            settings["public_url"] = public;
        }
        let config = json!({ "mcpServers": { "good": notes() }, "stayput": settings });
        let log = errors(&run(&["serve", "--stop-with-stdin"], &config));
        assert!(log.contains(&format!("  good: {beginning}")), "{log}");
        assert!(
            log.contains("listens on http://0.0.0.0:") && !log.contains("0.0.0.0/mcp"),
            "{log}"
        );
    }
}

/// A file without any usable server is refused, with the reason of its first one.
#[test]
fn only_broken_servers_refuse_the_start() {
    let output = run(&["serve"], &json!({ "mcpServers": { "bad": { "comand": "x" } } }));
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("mcpServers.bad.comand: unknown key"), "{}", errors(&output));
}

/// A user who writes `auth` at the top level believes that authentication is on.
#[test]
fn settings_at_the_top_level_refuse_the_start() {
    for key in ["auth", "listen", "expiry"] {
        let output = run(&["serve"], &json!({ "mcpServers": { "good": notes() }, key: {} }));
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let place = format!(
            ": {key}: this key has no effect here; move it into the \"stayput\" object of the file"
        );
        assert!(said.contains(&place), "{said}");
    }
}

/// A misspelt list of servers is named.
#[test]
fn misspelt_server_list_suggests_the_nearest_key() {
    let output = run(&["serve"], &json!({ "mcpServer": { "good": notes() } }));
    let said = errors(&output);
    assert!(
        said.contains("mcpServer: unknown key; the most similar one is \"mcpServers\""),
        "{said}"
    );
}

/// R029: a mistake in the entry of a running server changes nothing; a new entry with a mistake is left out.
#[tokio::test]
async fn reload_leaves_out_a_new_broken_entry_and_keeps_running_servers() {
    let gateway = Gateway::start(json!({ "good": notes() })).await;
    let client = gateway.client("good").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    gateway.configure(json!({ "good": { "comand": "x" } }));
    until("refusal", || gateway.log().contains("the configuration is not taken over")).await;
    assert_eq!(client.text(&gateway, "count").await, "2");
    gateway.configure(json!({ "good": notes(), "bad": { "comand": "x" }, "more": notes() }));
    until("warning", || gateway.log().contains("the server `bad` is disabled")).await;
    assert_eq!(client.text(&gateway, "count").await, "3");
    assert_eq!(gateway.client("more").await.text(&gateway, "count").await, "1");
}

/// `check` reports every broken entry, and checks the others.
#[test]
fn check_reports_every_broken_entry() {
    let output = run(&["check", "--json"], &json!({ "mcpServers": mixed() }));
    assert_eq!(output.status.code(), Some(1));
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
    let servers = checked["servers"].as_array().unwrap();
    for (name, sentence) in SENTENCES {
        let server = servers.iter().find(|server| server["server"] == name).unwrap();
        assert!(
            server["findings"].to_string().replace("\\\"", "\"").contains(sentence),
            "{server}"
        );
    }
    let good = servers.iter().find(|server| server["server"] == "good").unwrap();
    assert_eq!(good["tools"], 4, "{good}");
}

#[test]
fn check_of_no_server_fails() {
    let output = run(&["check"], &json!({ "mcpServers": {} }));
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("no server is enabled"), "{}", errors(&output));
}

//! Examples in `--help`: each of them is run.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use stayput_testkit::program;
use support::Gateway;
use tempfile::TempDir;

/// Longest time of all examples on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(400);

/// Beginning of an id in the examples.
const ID: &str = "0192f0c0-7";

/// Commands that go on until they are ended. They write a line when they have begun.
const LASTING: [&str; 4] =
    ["stayput serve", "stayput demo-server --http", "stayput sessions --watch", "stayput ui"];

fn help(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    let output = command.args(arguments).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns all examples: the lines behind `Examples:`, without the words behind the command.
fn examples() -> Vec<String> {
    let whole = help(&[]);
    let commands = whole.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 10, "{whole}");
    let mut pages = vec![whole.clone()];
    pages.extend(names.iter().filter(|name| **name != "help").map(|name| help(&[name])));
    let mut found = Vec::new();
    for page in &pages {
        let lines = page.lines().skip_while(|line| *line != "Examples:").skip(1);
        // Deeper lines go on with the words of the line before.
        let lines = lines.take_while(|line| line.starts_with("  "));
        for line in lines.filter(|line| !line.starts_with("   ")) {
            found.push(line.trim().split("  ").next().unwrap().to_owned());
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Folders and programs that the examples need.
struct Stage {
    gateway: Gateway,
    /// Folder without a gateway, for the commands that start one.
    apart: TempDir,
}

impl Stage {
    async fn new() -> Self {
        let apart = TempDir::new().unwrap();
        let browser = json!({
            "command": program("stayput-testserver"),
            "args": ["stdio", "--era", "legacy", "--tool", "browser_navigate"],
        });
        let notes = json!({ "command": env!("CARGO_BIN_EXE_stayput"), "args": ["demo-server"] });
        let servers = json!({ "notes": notes, "browser": browser });
        let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
        let token = command.args(["token", "ops", "--admin", "--json"]).output().unwrap();
        let token: Value = serde_json::from_slice(&token.stdout).unwrap();
        let auth = json!({ "auth": { "tokens": { "ops": token["entry"] } } });
        let gateway = Gateway::with(servers.clone(), auth).await;
        std::fs::write(gateway.folder.path().join("token"), token["token"].as_str().unwrap())
            .unwrap();
        let here = json!({ "mcpServers": servers, "stayput": { "listen": "127.0.0.1:0" } });
        for name in ["stayput.json", "team.json"] {
            std::fs::write(apart.path().join(name), here.to_string()).unwrap();
        }
        let stage = Self { gateway, apart };
        stage.install("stayput", env!("CARGO_BIN_EXE_stayput"), "");
        // Packages that these would fetch.
        for fetcher in ["npx", "uvx"] {
            let server = program("stayput-testserver");
            stage.install(fetcher, server.to_str().unwrap(), "stdio --era legacy #");
        }
        // Files of editors, in the home folder.
        for name in [".cursor/mcp.json", ".vscode/mcp.json"] {
            let file = stage.apart.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            let list = if name.contains("vscode") { "servers" } else { "mcpServers" };
            std::fs::write(file, json!({ list: { "x": { "command": "npx" } } }).to_string())
                .unwrap();
        }
        stage
    }

    /// Writes a script that runs a program.
    fn install(&self, name: &str, target: &str, arguments: &str) {
        let folder = self.apart.path().join("bin");
        std::fs::create_dir_all(&folder).unwrap();
        let script = folder.join(name);
        std::fs::write(&script, format!("#!/bin/sh\nexec '{target}' {arguments} \"$@\"\n"))
            .unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Builds the shell for a command, in a process group of its own.
    fn shell(&self, line: &str, folder: &Path) -> Command {
        let path = format!(
            "{}:{}",
            self.apart.path().join("bin").display(),
            std::env::var("PATH").unwrap()
        );
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(folder).env("PATH", path).process_group(0);
        command.env("XDG_DATA_HOME", self.apart.path().join("data")).env("HOME", self.apart.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Makes a session for an example, and returns its id.
    fn session(&self, number: usize) -> String {
        let folder = self.gateway.folder.path();
        let line =
            format!("stayput call --session help-{number} notes count && stayput sessions --json");
        let output = self.shell(&line, folder).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let list: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
        let named =
            list.as_array().unwrap().iter().find(|it| it["key"] == format!("name:help-{number}"));
        named.unwrap()["id"].as_str().unwrap().to_owned()
    }

    /// Runs an example.
    fn run(&self, number: usize, example: &str) {
        let mut line = example.replace("https://mcp.example.com", &self.gateway.url);
        line = line.replace("127.0.0.1:8080", "127.0.0.1:0");
        if line.starts_with("stayput install") && !line.contains("--dry-run") {
            line += " --yes";
        }
        if line.contains(ID) {
            line = line.replace(ID, &self.session(number));
        }
        // The text is valid JSON, which is all that the program behind the pipe needs.
        line = line.split(" | jq").next().unwrap().to_owned();
        let uses_gateway = ["sessions", "call", "tools", "status", "check", "ui"];
        let folder = match uses_gateway.iter().any(|it| line.contains(&format!("stayput {it}"))) {
            true => self.gateway.folder.path(),
            false => self.apart.path(),
        };
        match LASTING.iter().any(|it| line.starts_with(it)) {
            true => self.begin(&line, folder),
            false => self.finish(&line, folder),
        }
    }

    /// Runs a command to its end.
    fn finish(&self, line: &str, folder: &Path) {
        let mut child = self.shell(line, folder).spawn().unwrap();
        // An answer for `stayput stdio` and the demo server, and nothing for the others.
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let _ = writeln!(child.stdin.take().unwrap(), "{request}");
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    }

    /// Runs a command until it writes its first line, and ends it.
    fn begin(&self, line: &str, folder: &Path) {
        let mut child = self.shell(&format!("exec {line} 2>&1"), folder).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(!first.is_empty() && child.try_wait().unwrap().is_none(), "{line}: {first}");
        let group = format!("-{}", child.id());
        assert!(Command::new("kill").args(["-TERM", "--", &group]).status().unwrap().success());
        child.wait().unwrap();
    }
}

#[tokio::test]
async fn every_example_of_the_help_runs() {
    let stage = Stage::new().await;
    let all = examples();
    assert!(all.len() > 20, "{all:?}");
    let run = tokio::task::spawn_blocking(move || {
        for (number, example) in all.iter().enumerate() {
            stage.run(number, example);
        }
        stage.finish("stayput stop --yes", stage.apart.path());
        stage
    });
    drop(tokio::time::timeout(TIME_LIMIT, run).await.expect("in time").unwrap());
}

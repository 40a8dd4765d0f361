//! `stayput check`: its findings, and the cleanup after it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "clients/recipe.rs"]
#[allow(clippy::expect_used, reason = "a test stops at the first surprise")]
mod recipe;
mod support;

use std::{path::Path, process::Stdio, time::Duration};

use serde_json::{Value, json};
use stayput_testkit::{mcp::TestServer, peers, processes, program};
use support::{gone, mark, stdio, until};
use tempfile::TempDir;
use tokio::process::Command;

/// Longest time of a check on a busy machine, browsers included.
const LONG: Duration = Duration::from_secs(180);

/// Check of these servers in a temporary folder.
struct Check {
    folder: TempDir,
    arguments: Vec<&'static str>,
}

/// Exit code and output of a check.
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Check {
    fn of(servers: &Value) -> Self {
        Self::text(&json!({ "mcpServers": servers }).to_string())
    }

    fn text(text: &str) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("stayput.json"), text).unwrap();
        Self { folder, arguments: Vec::new() }
    }

    fn with(mut self, arguments: &[&'static str]) -> Self {
        self.arguments.extend(arguments);
        self
    }

    fn temporary(&self) -> std::path::PathBuf {
        self.folder.path().join("t")
    }

    fn command(&self) -> Command {
        let temporary = self.temporary();
        std::fs::create_dir_all(&temporary).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
        command.arg("check").args(&self.arguments).current_dir(self.folder.path());
        command.env("TMPDIR", temporary).env_remove("NOT_SET_IN_TESTS").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    async fn run(&self) -> Said {
        let output = tokio::time::timeout(LONG, self.command().output()).await.unwrap().unwrap();
        self.is_tidy();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code();
        Said { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Checks that no `stayput-` file is left in the temporary folder.
    fn is_tidy(&self) {
        let left = std::fs::read_dir(self.temporary()).unwrap().map(|it| it.unwrap().file_name());
        let left: Vec<_> =
            left.filter(|name| name.to_string_lossy().starts_with("stayput-")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Said {
    /// Returns the result for one server.
    fn of(&self, server: &str) -> Value {
        let all: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|_| {
            panic!("no JSON: {}\n{}", self.stdout, self.stderr);
        });
        let servers = all["servers"].as_array().unwrap();
        let found = servers.iter().find(|it| it["server"] == server);
        found.unwrap_or_else(|| panic!("{server} is not in {all}")).clone()
    }

    fn finding(&self, server: &str) -> (String, String) {
        let of = self.of(server);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let finding = &of["findings"][0];
        assert!(finding.is_object() && of["ok"] == false, "{of}");
        (text(&finding["what"]), text(&finding["remedy"]))
    }
}

/// Design §5: the check prints era, version, tools, time and isolation of each server, over every transport.
#[tokio::test]
async fn working_servers_are_listed_in_a_table() {
    let (legacy, modern) = (
        TestServer::http(&["--era", "legacy"]).await,
        TestServer::http(&["--era", "modern"]).await,
    );
    let (stateless, mark) =
        (TestServer::http(&["--era", "legacy", "--stateless"]).await, mark("check-well"));
    let mut shared = stdio(&mark, &[]);
    shared["stayput"] = json!({ "isolation": "shared" });
    let servers = json!({
        "child": stdio(&mark, &[]),
        "shared": shared,
        "http": { "url": legacy.url() },
        "modern": { "url": modern.url() },
        "stateless": { "url": stateless.url() },
        "off": { "command": "${NOT_SET_IN_TESTS}", "disabled": true },
    });
    let check = Check::of(&servers);
    let said = check.run().await;
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.starts_with("SERVER"), "{}", said.stdout);
    assert!(!said.stdout.contains("off"), "{}", said.stdout);
    let row = |name: &str| {
        let mut rows = said.stdout.lines();
        let row = rows.find(|line| line.split_whitespace().next() == Some(name)).unwrap();
        row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
    };
    let cells = row("child");
    assert_eq!(cells[1..3], ["stdio", "legacy 2025-11-25"], "{cells:?}");
    assert!(cells[3].parse::<usize>().unwrap() > 3, "{cells:?}");
    assert_eq!((cells[4], cells[6]), ("own process", "ok"));
    cells[5].parse::<u64>().unwrap();
    assert_eq!(row("http")[4], "own session");
    assert_eq!(row("stateless")[4], "stateless");
    assert_eq!(row("shared")[4], "shared");
    let cells = row("modern");
    assert_eq!((cells[2], cells[4]), ("modern 2026-07-28", "shared"));
    gone(&mark).await;
}

/// The check says which URLs speak both eras, because they keep no session for modern clients. A URL of one era, a URL
/// whose era is set, and a process have no such note.
#[tokio::test]
async fn url_of_both_eras_is_noted() {
    let (dual, legacy) =
        (TestServer::http(&[]).await, TestServer::http(&["--era", "legacy"]).await);
    let child = json!({ "command": program("stayput-testserver"), "args": ["stdio"] });
    let said = Check::of(&json!({
        "both": { "url": dual.url() },
        "forced": { "url": dual.url(), "stayput": { "era": "legacy" } },
        "old": { "url": legacy.url() },
        "child": child,
    }));
    let said = said.run().await;
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    let noted: Vec<_> =
        said.stdout.lines().filter(|line| line.contains("speaks both eras")).collect();
    assert_eq!(noted.len(), 1, "{}", said.stdout);
    assert!(noted[0].starts_with("both:") && noted[0].contains(r#""era": "legacy""#), "{noted:?}");
}

/// A server that cannot be started or reached is reported with advice. The other servers are checked all the same.
#[tokio::test]
async fn broken_servers_are_reported_with_advice() {
    let mark = mark("check-broken");
    let check = Check::of(&json!({
        "well": stdio(&mark, &[]),
        "missing": { "command": "no-such-program-of-tests" },
        "exits": { "command": "sh", "args": ["-c", "echo the key is missing >&2; exit 3"] },
        "away": { "url": "http://127.0.0.1:1/mcp" },
        "unset": { "command": "x", "env": { "TOKEN": "${NOT_SET_IN_TESTS}" } },
    }));
    let said = check.with(&["--json"]).run().await;
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert_eq!(said.of("well")["ok"], true);
    let (what, remedy) = said.finding("missing");
    assert!(
        what.contains("could not be started") && remedy.contains("which no-such-program-of-tests"),
        "{what}"
    );
    let (what, _) = said.finding("exits");
    assert!(what.contains("code 3") && what.contains("the key is missing"), "{what}");
    let (what, remedy) = said.finding("away");
    assert!(what.contains("cannot be reached") && remedy.contains("\"url\""), "{what} {remedy}");
    let (what, _) = said.finding("unset");
    let place = "stayput.json:1:";
    assert!(what.contains(place) && what.contains("mcpServers.unset.env.TOKEN"), "{what}");
    assert!(what.contains("NOT_SET_IN_TESTS is not set"), "{what}");
    gone(&mark).await;
    let text = r#"{"mcpServers": {}, "stayput": {"store": "redis://:${NOT_SET_IN_TESTS}@h"}}"#;
    let said = Check::text(text).with(&["--json"]).run().await;
    let (what, _) = said.finding("(settings)");
    assert!(said.code == Some(1) && what.contains("stayput.store: the environment"), "{what}");
}

/// An invalid file is reported like by `stayput serve`, with code 2. So is an unknown name.
#[tokio::test]
async fn invalid_configuration_ends_with_code_2() {
    let wrong = "{\"mcpServers\": {},\n \"stayput\": {\"lisen\": 1}}";
    let said = Check::text(wrong).run().await;
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("stayput.json:2:14: stayput.lisen: unknown key"));
    assert!(said.stderr.contains("\"listen\"") && said.stdout.is_empty(), "{}", said.stderr);
    let said = Check::text(wrong).with(&["--json"]).run().await;
    let told: Value = serde_json::from_str(&said.stdout).unwrap();
    assert!(told["ok"] == false && told["error"].as_str().unwrap().contains("lisen"), "{told}");
    let mark = mark("check-named");
    let servers = json!({ "one": stdio(&mark, &[]), "two": { "command": "no-such-program" } });
    let said = Check::of(&servers).with(&["--server", "three"]).run().await;
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("the servers are one, two"), "{}", said.stderr);
    let said = Check::of(&servers).with(&["--server", "one"]).run().await;
    assert_eq!(said.code, Some(0), "{}", said.stdout);
    let empty = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    let output = command.arg("check").current_dir(empty.path()).output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// Design §4.5: separate processes can still share state. The check names the file that both write to.
#[tokio::test]
async fn file_shared_by_two_sessions_is_found() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("notes.db");
    let server = program("stayput-testserver");
    let server = server.to_str().unwrap();
    let script = |file: &str| {
        let line = format!("exec 9>>\"{file}\"; exec {server} stdio --era legacy");
        json!({ "command": "sh", "args": ["-c", line] })
    };
    let check = Check::of(&json!({
        "one": script(file.to_str().unwrap()), "own": script("${session.dir}/notes.db"),
    }));
    let said = check.with(&["--json"]).run().await;
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    let (what, remedy) = said.finding("one");
    assert!(what.contains(file.to_str().unwrap()) && remedy.contains("${session.dir}"), "{what}");
    assert_eq!(said.of("one")["isolation"], "mixed");
    let own = said.of("own");
    assert_eq!((&own["ok"], &own["isolation"]), (&json!(true), &json!("own process")), "{own}");
}

/// Ctrl-C while a server does not answer ends its process.
#[tokio::test]
async fn interrupted_check_leaves_no_process() {
    let mark = mark("check-interrupted");
    let check = Check::of(&json!({ "mute": stdio(&mark, &["--silent", "--ignore-eof"]) }));
    let child = check.command().spawn().unwrap();
    until("process", || !processes::with_token(&mark).is_empty()).await;
    let pid = child.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = tokio::time::timeout(LONG, child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(130));
    gone(&mark).await;
    check.is_tidy();
}

/// The default memory file is shared; with the recipe each session has its own.
#[tokio::test]
async fn shared_memory_file_is_found() {
    if peers::are_left_out() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("memory.jsonl");
    let (name, recipe) = recipe::read("server-memory");
    let mut common = recipe.clone();
    common["env"]["MEMORY_FILE_PATH"] = json!(file);
    let check = Check::of(&json!({ (name.clone()): recipe, "common": common }));
    let said = check.with(&["--json"]).run().await;
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    let own = said.of(&name);
    assert_eq!((&own["ok"], &own["isolation"]), (&json!(true), &json!("apart")), "{own}");
    let (what, remedy) = said.finding("common");
    assert!(what.contains("another one reads"), "{what}");
    assert!(remedy.contains("MEMORY_FILE_PATH") && remedy.contains("${session.dir}"), "{remedy}");
    assert_eq!(said.of("common")["isolation"], "mixed");
    let left = std::fs::read_to_string(&file).unwrap();
    assert!(!left.contains("stayput-check"), "what was written for the check is gone: {left}");
}

fn notes() -> Value {
    json!({ "command": env!("CARGO_BIN_EXE_stayput"), "args": ["demo-server"] })
}

/// Compares the output of a check with the example in the documentation: each line begins with the same words. Times
/// differ.
fn assert_documented(printed: &str) {
    let page = include_str!("../../../docs/configuration.md");
    let example = page.split("```console\n$ stayput check").nth(1).unwrap();
    let (_, example) = example.split_once('\n').unwrap();
    let example = example.split("```").next().unwrap();
    let words = |line: &str| {
        let line = line.split('…').next().unwrap();
        let is_text = |word: &&str| word.parse::<u64>().is_err();
        line.split_whitespace().filter(is_text).map(str::to_owned).collect::<Vec<_>>()
    };
    for line in example.lines().map(words).filter(|line| !line.is_empty()) {
        let is_printed = printed.lines().map(words).any(|it| it.starts_with(&line));
        assert!(is_printed, "{line:?} is not in\n{printed}");
    }
}

/// Without `--no-calls` the check opens browsers. With the recipe each session has one, without it the second is
/// refused.
#[tokio::test]
async fn shared_browser_profile_is_found() {
    if peers::are_left_out() {
        return;
    }
    let temporary = tempfile::Builder::new().prefix("pw").tempdir().unwrap();
    let (name, recipe) = recipe::browser(temporary.path());
    let profile = temporary.path().join("profile");
    let with = |argument: String| {
        let mut entry = recipe.clone();
        for it in entry["args"].as_array_mut().unwrap() {
            if it.as_str().unwrap().starts_with("--user-data-dir") {
                *it = json!(argument);
            }
        }
        entry
    };
    let common = with(format!("--user-data-dir={}", profile.display()));
    let isolated = with("--isolated".to_owned());
    let check = Check::of(&json!({
        (name.clone()): recipe.clone(), "isolated": isolated, "common": common,
    }));
    let said = check.with(&["--json"]).run().await;
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    for apart in [&*name, "isolated"] {
        let own = said.of(apart);
        assert_eq!((&own["ok"], &own["isolation"]), (&json!(true), &json!("apart")), "{own}");
    }
    let (what, remedy) = said.finding("common");
    assert!(what.contains("second session does not work"), "{what}");
    assert!(remedy.contains("--isolated") && remedy.contains("${session.dir}"), "{remedy}");
    let printed = Check::of(&json!({ "browser": common, "notes": notes() })).run().await.stdout;
    assert_documented(&printed);
    let left = processes::with_token(temporary.path().to_str().unwrap());
    assert!(left.is_empty(), "{left:?}");
}

/// The reference server has nothing to configure. A check without calls reports only what it can know.
#[tokio::test]
async fn check_without_calls_passes_the_reference_server() {
    if peers::are_left_out() {
        return;
    }
    let (name, recipe) = recipe::read("server-everything");
    let (_, memory) = recipe::read("server-memory");
    let check = Check::of(&json!({ (name.clone()): recipe, "memory": memory }));
    let said = check.with(&["--json", "--no-calls"]).run().await;
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    assert_eq!(said.of(&name)["isolation"], "own process");
    assert_eq!(said.of("memory")["isolation"], "own process");
    assert!(said.of(&name)["tools"].as_u64().unwrap() > 5);
}

/// The printed schema is the shipped one.
#[tokio::test]
async fn schema_command_prints_the_shipped_schema() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    let output = command.arg("schema").output().await.unwrap();
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stayput.schema.json");
    let shipped: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(printed, shipped);
}

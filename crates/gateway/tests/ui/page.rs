//! Running `stayput ui`, and the browser that opens it.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use stayput_testkit::{mcp::send, peers};

use crate::support::Gateway;

/// Timeout of one case, which takes seconds on an idle machine.
const CASE_TIMEOUT: Duration = Duration::from_secs(240);

/// Running `stayput ui`. Dropping it kills it.
pub(crate) struct Dashboard {
    child: Child,
    /// Printed address, with the token.
    pub(crate) url: String,
    gateway: String,
}

impl Dashboard {
    /// Starts `stayput ui` for a gateway, and reads the address that it prints.
    pub(crate) fn open(gateway: &Gateway) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
        command.args(["ui", "--no-browser", "--config"]).arg(gateway.config());
        command.env("XDG_DATA_HOME", gateway.folder.path().join("data"));
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().last().expect("an address").to_owned();
        assert!(url.starts_with("http://127.0.0.1:") && url.contains("/ui/#token=stp_"), "{line}");
        Self { child, url, gateway: gateway.url.clone() }
    }

    /// Runs a case of `cases.mjs` with this page.
    pub(crate) async fn run(&self, case: &str, mut given: Value) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
        given["page"] = json!(self.url);
        given["gateway"] = json!(self.gateway);
        given["chromium"] = json!(peers::chromium());
        let mut command = tokio::process::Command::new(peers::node());
        command.arg(folder.join("run.mjs")).args([case, &given.to_string()]).kill_on_drop(true);
        command.env("STAYPUT_TEST_PEERS", peers::folder().unwrap());
        let output = tokio::time::timeout(CASE_TIMEOUT, command.output()).await;
        let output = output.expect("the case ends").unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // The numbers of a case are shown with `--no-capture`.
        std::io::stderr().write_all(&output.stdout).unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    }

    /// Ends it as Ctrl-C does.
    pub(crate) fn stop(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.child.wait().unwrap()
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Record of an opened browser.
#[cfg(target_os = "linux")]
pub(crate) struct OpenedBrowser {
    /// Arguments of the program that opens it, one in a line.
    pub(crate) arguments: String,
    /// Modes of the folder and of the file that it gets.
    pub(crate) modes: String,
    /// Content of that file.
    pub(crate) page: String,
}

/// Runs `stayput ui` on a terminal, with a program in place of `xdg-open` that records what it gets, and ends it with
/// Ctrl-C.
#[cfg(target_os = "linux")]
pub(crate) async fn open_browser(gateway: &Gateway) -> OpenedBrowser {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = gateway.folder.path().join("browser");
    std::fs::create_dir(&folder).unwrap();
    let opener = folder.join("xdg-open");
    let text = "#!/bin/sh\ncd \"${0%/*}\" || exit 1\nprintf '%s\\n' \"$@\" >arguments\n\
                echo \"$(stat -c %a \"${1%/*}\") $(stat -c %a \"$1\")\" >modes\ncat \"$1\" >page\n: >done\n";
    std::fs::write(&opener, text).unwrap();
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o700)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let program = env!("CARGO_BIN_EXE_stayput");
    let line = format!("exec '{program}' ui --config '{}'", gateway.config().display());
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("PATH", path).env("DISPLAY", ":0");
    command.env("TMPDIR", &folder).env("XDG_DATA_HOME", gateway.folder.path().join("data"));
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    crate::support::until("the browser is opened", || folder.join("done").exists()).await;
    child.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    assert!(child.wait().unwrap().success());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    OpenedBrowser { arguments: read("arguments"), modes: read("modes"), page: read("page") }
}

/// Creates a token and its entry in the configuration.
pub(crate) fn token(arguments: &[&str]) -> (String, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    let output = command.arg("token").args(arguments).arg("--json").output().unwrap();
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    (made["token"].as_str().unwrap().to_owned(), made["entry"].clone())
}

/// Opens this many sessions, by a client of each.
pub(crate) async fn open_sessions(gateway: &Gateway, count: usize) {
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "many", "version": "1" },
    }})
    .to_string();
    let open = async |from: usize| {
        for number in (from..count).step_by(32) {
            let name = format!("key:chat-{number:05}");
            let headers = [
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
                ("stayput-session", &*name),
            ];
            let url = gateway.at("test");
            let answer = send(http::Method::POST, &url, &headers, body.clone()).await.unwrap();
            assert_eq!(answer.status, 200);
            answer.message().await;
        }
    };
    futures_util::future::join_all((0..32).map(open)).await;
}

/// Entry of `@playwright/mcp`, whose process starts a browser.
pub(crate) fn playwright(temporary: &Path) -> Value {
    let peer = peers::playwright();
    let mut args: Vec<String> =
        peer.args.iter().map(|it| it.to_str().unwrap().to_owned()).collect();
    let chromium = peers::chromium();
    let more = [
        "--headless",
        "--isolated",
        "--no-sandbox",
        "--executable-path",
        chromium.to_str().unwrap(),
    ];
    args.extend(more.map(str::to_owned));
    json!({ "command": peer.program, "args": args, "cwd": temporary, "env": {
        "TMPDIR": temporary,
        "XDG_CONFIG_HOME": "${session.dir}/config",
        "XDG_CACHE_HOME": "${session.dir}/cache",
    }})
}

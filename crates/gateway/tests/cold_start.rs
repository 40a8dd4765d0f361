//! First contact with a server: the process that is started to ask it serves the session that follows.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "modern/kit.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod kit;
mod support;

use std::{path::Path, process::Command};

use kit::Modern;
use serde_json::{Value, json};
use stayput_testkit::{processes, program};
use support::{Gateway, LONG, gone, mark, until};
use tempfile::NamedTempFile;

/// Files in which the test server records its starts and the messages that it gets.
struct Record {
    starts: NamedTempFile,
    messages: NamedTempFile,
}

impl Record {
    fn new() -> Self {
        Self { starts: NamedTempFile::new().unwrap(), messages: NamedTempFile::new().unwrap() }
    }

    /// Entry of the test server of this era, which takes a while to start.
    fn server(&self, era: &str, mark: &str) -> Value {
        let (starts, messages) = (self.starts.path(), self.messages.path());
        let args = json!([
            "stdio",
            "--era",
            era,
            "--mark",
            mark,
            "--startup-ms",
            "300",
            "--starts",
            starts,
            "--log",
            messages,
        ]);
        json!({ "command": program("stayput-testserver"), "args": args })
    }

    /// Process ids of all starts.
    fn starts(&self) -> Vec<u32> {
        lines(self.starts.path()).iter().map(|pid| pid.parse().unwrap()).collect()
    }

    /// Messages with this method.
    fn messages(&self, method: &str) -> Vec<Value> {
        let all = lines(self.messages.path());
        let all = all.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|message| message["method"] == method).collect()
    }
}

fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
}

/// A legacy client starts its server once: `initialize` starts the process, lists come from it, and the first call is
/// made on it. The server is told of the client, and no process serves two sessions.
#[tokio::test]
async fn server_is_started_once_for_its_first_session() {
    let (mark, record) = (mark("cold"), Record::new());
    let gateway = Gateway::start(json!({ "test": record.server("legacy", &mark) })).await;
    let ann = gateway.client("test").await;
    let listed = ann.request(&gateway, "tools/list", json!({})).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
    let pid: u32 = ann.text(&gateway, "pid").await.parse().unwrap();
    assert_eq!(ann.text(&gateway, "count").await, "1");
    assert_eq!(record.starts(), [pid]);
    let told = record.messages("initialize");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["params"]["clientInfo"]["name"], "test");
    let bob = gateway.client("test").await;
    assert_eq!(bob.text(&gateway, "count").await, "1", "the state of another session");
    assert_eq!((record.starts().len(), processes::with_token(&mark).len()), (2, 2));
    assert_eq!(ann.text(&gateway, "count").await, "2");
}

/// The folder of the process that was started for `initialize` is that of the session. Both go with the session.
#[tokio::test]
async fn first_process_has_the_folder_of_its_session() {
    let (mark, record) = (mark("cold-folder"), Record::new());
    let mut server = record.server("legacy", &mark);
    server["env"] = json!({ "DIR": "${session.dir}" });
    let gateway = Gateway::start(json!({ "test": server })).await;
    let client = gateway.client("test").await;
    let told = client.call(&gateway, "env", json!({ "name": "DIR" })).await;
    let folder = told["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(Path::new(&folder).starts_with(gateway.sessions()), "{folder}");
    assert_eq!(record.starts().len(), 1);
    assert_eq!(client.delete(&gateway).await, 200);
    gone(&mark).await;
    until("end of the folder", || !Path::new(&folder).exists()).await;
}

/// A process that waits for its session ends with that session. Until then it is listed as a spare.
#[tokio::test]
async fn process_of_an_unused_session_ends_with_it() {
    let (mark, record) = (mark("cold-unused"), Record::new());
    let gateway = Gateway::start(json!({ "test": record.server("legacy", &mark) })).await;
    let client = gateway.client("test").await;
    assert_eq!(processes::with_token(&mark), record.starts());
    let listed = stayput(&gateway, &["sessions", "--json"]);
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let spare = listed.iter().find(|it| it["state"] == "spare").unwrap();
    assert_eq!(spare["links"][0]["pid"], json!(record.starts()[0]));
    assert_eq!(client.delete(&gateway).await, 200);
    gone(&mark).await;
}

/// The process that waits makes room for a session of another server.
#[tokio::test]
async fn waiting_process_makes_room() {
    let (mark, other, record) = (mark("cold-room"), mark("cold-other"), Record::new());
    let servers =
        json!({ "test": record.server("legacy", &mark), "other": support::stdio(&other, &[]) });
    let gateway = Gateway::with(servers, json!({ "limits": { "processes": 1 } })).await;
    let waiting = gateway.client("test").await;
    let client = gateway.client("other").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    gone(&mark).await;
    assert_eq!(waiting.text(&gateway, "count").await, "1");
    assert_eq!(record.starts().len(), 2);
}

/// R031: lists of all servers, `stayput check` and `stayput tools` leave no process.
#[tokio::test]
async fn lists_leave_no_process() {
    let mark = mark("cold-lists");
    let gateway = Gateway::start(json!({ "test": support::stdio(&mark, &[]) })).await;
    let client = gateway.client("").await;
    let listed = client.request(&gateway, "tools/list", json!({})).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
    assert!(processes::with_token(&mark).is_empty());
    Modern::of(&gateway, "test").result("tools/list", json!({})).await;
    assert!(processes::with_token(&mark).is_empty());
    stayput(&gateway, &["check", "--config", gateway.config().to_str().unwrap()]);
    assert!(processes::with_token(&mark).is_empty());
    stayput(&gateway, &["tools", "test"]);
    gone(&mark).await;
}

/// Output of a command of the program.
fn stayput(gateway: &Gateway, arguments: &[&str]) -> String {
    let folder = gateway.folder.path();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(arguments).current_dir(folder).env("XDG_DATA_HOME", folder.join("data"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A modern client of a server of both eras starts it once, whether it asks for lists first or calls at once.
#[tokio::test]
async fn modern_client_starts_a_dual_server_once() {
    for asks in [true, false] {
        let (mark, record) = (mark(&format!("cold-dual-{asks}")), Record::new());
        let gateway = Gateway::start(json!({ "test": record.server("dual", &mark) })).await;
        let client = Modern::of(&gateway, "test").named("ann");
        if asks {
            client.result("server/discover", json!({})).await;
            client.result("tools/list", json!({})).await;
        }
        let pid: u32 = client.text("pid").await.parse().unwrap();
        assert_eq!(record.starts(), [pid]);
        assert!(record.messages("initialize").is_empty(), "the process is in the other era");
        assert_eq!(Modern::of(&gateway, "test").named("bob").text("count").await, "1");
        assert_eq!(record.starts().len(), 2, "a process served two sessions");
    }
}

/// A modern client of a legacy server starts it once, too.
#[tokio::test]
async fn modern_client_starts_a_legacy_server_once() {
    let (mark, record) = (mark("cold-legacy"), Record::new());
    let gateway = Gateway::start(json!({ "test": record.server("legacy", &mark) })).await;
    let client = Modern::of(&gateway, "test").named("ann");
    client.result("server/discover", json!({})).await;
    assert_eq!(client.text("count").await, "1");
    assert_eq!(record.starts().len(), 1);
    assert_eq!(record.messages("initialize").len(), 1);
}

/// A server of the modern era alone is shared. Of its two processes one is asked for the other era and ends, and the
/// other serves all sessions.
#[tokio::test]
async fn modern_server_is_not_started_again_for_its_link() {
    let (mark, record) = (mark("cold-modern"), Record::new());
    let gateway = Gateway::start(json!({ "test": record.server("modern", &mark) })).await;
    let client = Modern::of(&gateway, "test");
    let pid: u32 = client.text("pid").await.parse().unwrap();
    assert_eq!((record.starts().len(), record.starts()[0]), (2, pid));
    assert_eq!(processes::with_token(&mark), [pid]);
    let other = gateway.client("test").await;
    assert_eq!(other.text(&gateway, "pid").await, pid.to_string());
}

/// Server that asks for the roots as soon as the handshake is done. Its tool tells what it was answered.
const ASKING: &str = r#"
import json, sys
roots, waiting = None, []
def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def tell(id):
    say({"id": id, "result": {"content": [{"type": "text", "text": json.dumps(roots)}]}})
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        say({"id": id, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
             "serverInfo": {"name": "asking", "version": "1"}}})
    elif method == "notifications/initialized":
        say({"id": "roots", "method": "roots/list"})
    elif method == "tools/list":
        say({"id": id, "result": {"tools": [{"name": "roots", "inputSchema": {"type": "object"}}]}})
    elif method == "tools/call":
        waiting.append(id)
    elif id == "roots":
        roots = message.get("result", message.get("error"))
    elif id is not None:
        say({"id": id, "error": {"code": -32601, "message": "unknown"}})
    while roots is not None and waiting:
        tell(waiting.pop())
"#;

/// A request that the server makes before any call waits for the client that it was told of, and is not refused while
/// the process is asked for its lists.
#[tokio::test]
async fn request_at_the_handshake_reaches_the_first_client() {
    let server = json!({ "command": "python3", "args": ["-c", ASKING] });
    let gateway = Gateway::start(json!({ "test": server })).await;
    let client = gateway.client_with("test", "2025-11-25", json!({ "roots": {} })).await;
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "roots", "arguments": {} } });
    let mut events = client.send(&gateway, &call.to_string()).await.events();
    let asked = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
    assert_eq!(asked["method"], "roots/list", "{asked}");
    let roots = json!({ "roots": [{ "uri": "file:///home" }] });
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": roots });
    assert_eq!(client.send(&gateway, &answer.to_string()).await.status, 202);
    let told = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
    let text = told["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), roots);
}

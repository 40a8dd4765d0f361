//! `stayput stdio -- COMMAND` in place of a command: environment, stderr and the end of the input.

use serde_json::{Value, json};
use stayput_testkit::{processes, program};

use crate::{
    kit::{Home, Window, servers},
    support::{gone, mark, until},
};

/// Starts a window whose process has these variables.
fn window(home: &Home, mark: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Window {
    let mut command = home.command();
    let server = program("stayput-testserver");
    command.arg("stdio").args(arguments).arg("--").arg(server);
    command.args(["stdio", "--era", "legacy", "--mark", mark]).envs(variables.iter().copied());
    Window::start(command)
}

/// Returns the environment of each running server with this mark.
fn environments(mark: &str) -> Vec<String> {
    let is_server = |pid: &u32| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe"));
        program.is_ok_and(|program| program.ends_with("stayput-testserver"))
    };
    let found = processes::with_token(mark).into_iter().filter(is_server);
    let text = |pid| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    found.map(|pid| String::from_utf8_lossy(&text(pid)).replace('\0', "\n")).collect()
}

/// Files of the user's data folder that contain a text.
fn files_with(home: &Home, text: &str) -> Vec<std::path::PathBuf> {
    let mut folders = vec![home.0.path().to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read(&path)
                .is_ok_and(|it| it.windows(text.len()).any(|part| part == text.as_bytes()))
            {
                found.push(path);
            }
        }
    }
    found
}

/// The server has the whole environment of the window that opened it, and it stays secret. Another environment is the
/// same server. `--env` sets variables beside it.
#[tokio::test]
async fn server_has_the_environment_of_its_window() {
    let (home, mark) = (Home::new(), mark("stdio-environment"));
    let key = ["--session", "work"];
    let first = [("SOME_TOKEN", "s3cr3t-of-window-1"), ("ODD", "${session.dir} $x")];
    let mut one = window(&home, &mark, &first, &key);
    one.greet().await;
    assert_eq!(one.count().await, "1");
    let mut two = window(&home, &mark, &[("SOME_TOKEN", "s3cr3t-of-window-2")], &key);
    two.greet().await;
    assert_eq!(two.count().await, "2", "the environment is no part of the server's identity");
    let found = environments(&mark);
    assert_eq!(found.len(), 1);
    for line in ["SOME_TOKEN=s3cr3t-of-window-1\n", "ODD=${session.dir} $x\n"] {
        assert!(found[0].contains(line), "{line}: {}", found[0]);
    }
    let warning = "the variable ODD is passed on with its ${…}";
    assert!(one.log().contains(warning) && !two.log().contains(warning), "{}", one.log());
    let own = ["--session", "other", "--env", "DATA=${session.dir}/x", "--env", "A=b"];
    let mut three = window(&home, &mark, &first, &own);
    three.greet().await;
    assert_eq!(three.count().await, "1");
    let found = environments(&mark);
    let set = found.iter().find(|it| it.lines().any(|line| line == "A=b")).unwrap();
    let data = set.lines().find_map(|line| line.strip_prefix("DATA=")).unwrap();
    assert!(data.starts_with(home.0.path().to_str().unwrap()) && data.ends_with("/x"), "{data}");
    for window in [one, two, three] {
        assert!(!window.log().contains("s3cr3t"), "{}", window.log());
        assert!(window.close().await.success());
    }
    assert_eq!(files_with(&home, "s3cr3t-of-window"), Vec::<std::path::PathBuf>::new());
}

/// A server of 2026-07-28 alone, which is shared otherwise, has a process for each window, with the environment of that
/// window.
#[tokio::test]
async fn windows_of_a_modern_server_have_their_own_environment() {
    let (home, mark) = (Home::new(), mark("stdio-modern-environment"));
    let (server, mut windows) = (program("stayput-testserver"), Vec::new());
    for window_name in ["one", "two"] {
        let mut command = home.command();
        command.arg("stdio").arg("--").arg(&server);
        command.args(["stdio", "--era", "modern", "--mark", &mark]).env("TOKEN_OF", window_name);
        let mut window = Window::start(command);
        window.greet().await;
        let answer = window.call("env", json!({ "name": "TOKEN_OF" })).await;
        assert_eq!(answer["result"]["content"][0]["text"], window_name, "{answer}");
        // The first window stays open while the second one calls.
        windows.push(window);
    }
    assert_eq!(environments(&mark).len(), 2);
    for window in windows {
        assert!(window.close().await.success());
    }
}

/// The process that the first window has begun with is not given to the second window, whose environment is another one.
#[tokio::test]
async fn waiting_process_of_a_window_is_not_given_to_another() {
    let (home, server) = (Home::new(), program("stayput-testserver"));
    for era in ["legacy", "dual"] {
        let mark = mark(&format!("stdio-waiting-{era}"));
        let mut windows: Vec<Window> = Vec::new();
        for window_name in ["one", "two"] {
            let mut command = home.command();
            command.arg("stdio").arg("--").arg(&server);
            command.args(["stdio", "--era", era, "--mark", &mark]).env("TOKEN_OF", window_name);
            let mut window = Window::start(command);
            window.greet().await;
            windows.push(window);
        }
        for (window, expected) in windows.iter_mut().zip(["one", "two"]).rev() {
            let answer = window.call("env", json!({ "name": "TOKEN_OF" })).await;
            assert_eq!(answer["result"]["content"][0]["text"], expected, "{era}: {answer}");
        }
        for window in windows {
            assert!(window.close().await.success());
        }
    }
}

/// Windows of one session with different `--env` have different processes, and the second one is told why it begins with
/// nothing.
#[tokio::test]
async fn windows_with_different_variables_have_different_processes() {
    let (home, mark) = (Home::new(), mark("stdio-variables"));
    let mut one = window(&home, &mark, &[], &["--session", "work", "--env", "A=1"]);
    one.greet().await;
    assert_eq!(one.count().await, "1");
    let mut two = window(&home, &mark, &[], &["--session", "work", "--env", "A=2"]);
    two.greet().await;
    let told = two.call("count", json!({})).await.to_string();
    assert!(told.contains("configuration") && !told.contains("restarted"), "{told}");
    assert_eq!(two.count().await, "1");
    assert_eq!(one.count().await, "2", "the first process is still there");
    assert_eq!(environments(&mark).len(), 2);
    for window in [one, two] {
        assert!(window.close().await.success());
    }
}

/// Two servers that a host starts with one command and two tokens are two processes, also in one conversation.
#[tokio::test]
async fn servers_with_one_command_have_their_own_tokens() {
    let (home, mark) = (Home::new(), mark("stdio-tokens"));
    let mut windows = Vec::new();
    for name in ["one", "two"] {
        let server = format!("--server={name}");
        let mut window = window(&home, &mark, &[("SOME_TOKEN", name)], &[&server]);
        window.greet().await;
        let params = json!({ "name": "env", "arguments": { "name": "SOME_TOKEN" },
            "_meta": { "vscode.conversationId": "chat" } });
        let answer = window.ask("tools/call", params).await;
        assert_eq!(answer["result"]["content"][0]["text"], name, "{answer}");
        windows.push(window);
    }
    assert_eq!(environments(&mark).len(), 2);
    for window in windows {
        assert!(window.close().await.success());
    }
}

/// Server that never stops writing to its stderr.
const FLOODING: &str = r#"
import json, os, sys, threading
def flood():
    while True:
        os.write(2, b"x" * 4095 + b"\n")
threading.Thread(target=flood, daemon=True).start()
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "flooding", "version": "1"}}
    elif message.get("method") == "tools/list":
        result = {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]}
    else:
        result = {"content": [{"type": "text", "text": "hello"}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

/// Answers come although the server floods its stderr and the editor does not read it.
#[tokio::test]
async fn flood_of_stderr_does_not_delay_answers() {
    let home = Home::new();
    let mut command = home.command();
    command.args(["stdio", "--", "python3", "-c", FLOODING]);
    let mut window = Window::start_unread(command);
    window.greet().await;
    for _ in 0..3 {
        assert_eq!(window.text("hello", json!({})).await, "hello");
    }
}

/// `--env NAME` of a variable that is not set is an error, and no server is started.
#[tokio::test]
async fn unset_variable_is_an_error() {
    let home = Home::new();
    let mut command = home.command();
    command.args(["stdio", "--env", "STAYPUT_TEST_NOT_SET", "--", "true"]);
    let output = command.stdin(std::process::Stdio::null()).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("STAYPUT_TEST_NOT_SET") && said.contains("not set"), "{said}");
}

/// Starts a window in front of a shell script.
fn script(home: &Home, script: &str, arguments: &[&str]) -> Window {
    let mut command = home.command();
    command.arg("stdio").args(arguments).args(["--", "sh", "-c", script, "sh"]);
    // Without the prefix of other secrets: a server's own stderr reaches its own window unchanged.
    command.arg(program("stayput-testserver")).env("SOME_TOKEN", "hidden-of-script");
    Window::start(command)
}

/// The stderr of a server goes to the stderr of `stayput stdio`, whichever process starts the server.
#[tokio::test]
async fn stderr_of_the_server_reaches_the_window() {
    let mark = mark("stdio-stderr");
    let text = format!(r#"echo "warming up é" >&2; exec "$1" stdio --era legacy --mark {mark}"#);
    for arguments in [&[][..], &["--no-daemon"]] {
        let home = Home::new();
        let mut window = script(&home, &text, arguments);
        window.greet().await;
        assert_eq!(window.count().await, "1");
        until("stderr of the server", || window.log().contains("warming up é\n")).await;
        assert!(window.close().await.success());
        gone(&mark).await;
    }
}

/// The error of a server that exits holds the last line of its stderr, and the rest is on the stderr of the window. A
/// secret that it prints is in neither the error nor the log of the daemon.
#[tokio::test]
async fn last_line_of_stderr_is_in_the_error() {
    let text = r#"echo "reading settings" >&2; echo "$SOME_TOKEN is not valid" >&2; exit 3"#;
    for arguments in [&[][..], &["--no-daemon"]] {
        let home = Home::new();
        let mut window = script(&home, text, arguments);
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "ide", "version": "1" } });
        let refused = window.ask("initialize", hello).await;
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("[redacted] is not valid"), "{message}");
        assert!(!message.contains("reading settings"), "{message}");
        until("stderr of the server", || window.log().contains("reading settings\n")).await;
        assert!(window.close().await.success());
        if arguments.is_empty() {
            let log = std::fs::read_to_string(home.data().join("daemon.log")).unwrap();
            assert!(log.contains("is not valid") && !log.contains("hidden-of-script"), "{log}");
        }
    }
}

/// Requests that are in flight at the end of the input are answered before the process exits.
#[tokio::test]
async fn piped_requests_are_answered_before_the_exit() {
    let (home, mark) = (Home::new(), mark("stdio-piped"));
    for arguments in [&["--no-daemon"][..], &[]] {
        let mut window = home.in_front(&mark, arguments);
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "echo", "version": "1" } });
        let mut ids = vec![window.send("initialize", hello).await];
        window.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        ids.push(window.send("tools/list", json!({})).await);
        let slow = json!({ "name": "slow", "arguments": { "ms": 500 } });
        ids.push(window.send("tools/call", slow).await);
        let lines = window.rest().await;
        let answers = lines.iter().map(|it| serde_json::from_str::<Value>(it).unwrap());
        let answers: Vec<Value> = answers.filter(|it| it["result"].is_object()).collect();
        let answered = |id: &u64| answers.iter().any(|it| it["id"] == *id);
        assert!(ids.iter().all(answered), "{arguments:?}: {lines:?}");
        assert!(window.wait().await.success());
        gone(&mark).await;
    }
    assert_eq!(servers(&mark), 0);
}

/// A host that is gone does not keep the process for its answers.
#[tokio::test]
async fn closed_output_ends_the_wait_for_answers() {
    let (home, mark) = (Home::new(), mark("stdio-host-gone"));
    for arguments in [&["--no-daemon"][..], &[]] {
        let mut window = home.in_front(&mark, arguments);
        window.greet().await;
        let slow = json!({ "name": "slow", "arguments": { "ms": 600_000 } });
        window.send("tools/call", slow).await;
        window.stop_reading();
        // Less than the time that a host which still reads would get.
        let ended = tokio::time::timeout(std::time::Duration::from_secs(25), window.close());
        assert!(ended.await.expect("its end in time").success());
        gone(&mark).await;
    }
}

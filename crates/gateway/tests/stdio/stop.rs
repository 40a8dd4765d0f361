//! `stayput stop`, and `stayput serve` on a store that the background process of `stayput stdio` holds.

use std::process::Output;

use serde_json::{Value, json};
use stayput_testkit::mcp::TestServer;

use crate::{
    kit::{Home, Window, servers},
    support::{gone, mark, until},
};

/// Runs a command of `stayput` for this user.
async fn run(home: &Home, arguments: &[&str]) -> Output {
    home.command().args(arguments).stdin(std::process::Stdio::null()).output().await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Starts a window in front of an HTTP server.
fn remote(home: &Home, server: &TestServer, name: &str) -> Window {
    let entry = json!({ "mcpServers": { "remote": { "url": server.url() } } });
    std::fs::write(home.0.path().join("remote.json"), entry.to_string()).unwrap();
    home.window(&["--config", "remote.json", "--session", name])
}

/// `stop` names the sessions that lose their state, and needs `--yes` without a terminal. A window starts the next
/// process with its next request, not before.
#[tokio::test]
async fn stop_ends_the_background_process_and_says_what_is_lost() {
    let (home, mark) = (Home::new(), mark("stop"));
    let server = TestServer::http(&["--era", "legacy"]).await;
    let mut window = home.in_front(&mark, &["--session", "work"]);
    let mut other = remote(&home, &server, "far");
    for window in [&mut window, &mut other] {
        window.greet().await;
        assert_eq!(window.count().await, "1");
    }
    let mut status = text(&run(&home, &["status"]).await.stdout);
    assert!(status.contains("background process of `stayput stdio`, process "), "{status}");
    // A session is busy for a moment after the answer of its last call was written.
    for _ in 0..500 {
        if status.contains("sessions    2: 2 connected") {
            break;
        }
        status = text(&run(&home, &["status"]).await.stdout);
    }
    assert!(status.contains("sessions    2: 2 connected"), "{status}");
    let asked = run(&home, &["stop"]).await;
    let (said, errors) = (text(&asked.stdout), text(&asked.stderr));
    assert_eq!(asked.status.code(), Some(1), "{said}{errors}");
    assert!(said.contains("name:work: ") && !said.contains("name:far"), "{said}");
    assert!(said.contains("1 other sessions go on"), "{said}");
    assert!(errors.contains("say --yes"), "{errors}");
    assert_eq!((home.daemons().len(), servers(&mark)), (1, 1));
    let stopped = run(&home, &["stop", "--yes", "--json"]).await;
    let stopped: Value = serde_json::from_slice(&stopped.stdout).unwrap();
    let count = |name: &str| stopped[name].as_array().unwrap().len();
    assert_eq!((count("ended"), count("kept")), (1, 1), "{stopped}");
    until("end of the server", || servers(&mark) == 0).await;
    home.deserted().await;
    let again = run(&home, &["stop"]).await;
    assert!(again.status.success(), "{again:?}");
    assert!(text(&again.stdout).contains("nothing to stop"), "{again:?}");
    // The loss is told, and the session on the HTTP server goes on.
    let lost = window.call("count", json!({})).await;
    assert_eq!(lost["result"]["_meta"]["dev.stayput/state"]["state"], "lost", "{lost}");
    assert_eq!(other.count().await, "2");
    assert_eq!(home.daemons().len(), 1);
    for window in [window, other] {
        assert!(window.close().await.success());
    }
    run(&home, &["stop", "--yes"]).await;
    gone(&mark).await;
    home.deserted().await;
}

/// Arguments of `stayput serve` on the store of a user.
fn serve(home: &Home) -> tokio::process::Command {
    let mut command = home.command();
    let config = json!({ "mcpServers": { "notes": {
        "command": env!("CARGO_BIN_EXE_stayput"), "args": ["demo-server"]
    } } });
    std::fs::write(home.0.path().join("serve.json"), config.to_string()).unwrap();
    command.args(["serve", "--config", "serve.json", "--listen", "127.0.0.1:0"]);
    command.kill_on_drop(true);
    command
}

/// `serve` says that the store is held by the background process of an editor, and which sessions `stop` would end.
#[tokio::test]
async fn serve_names_the_sessions_of_an_editor_that_it_would_end() {
    let (home, mark) = (Home::new(), mark("serve-locked"));
    let mut window = home.in_front(&mark, &["--session", "work"]);
    window.greet().await;
    assert_eq!(window.count().await, "1");
    let refused = serve(&home).output().await.unwrap();
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    for part in ["background process of `stayput stdio` (process ", "`stayput stop`", "name:work: "]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(window.count().await, "2", "nothing was ended");
    let ended = window.call("session_end", json!({})).await;
    assert_eq!(ended["result"]["structuredContent"]["ended"], true, "{ended}");
    assert!(window.close().await.success());
    run(&home, &["stop", "--yes"]).await;
    gone(&mark).await;
    home.deserted().await;
}

/// Sessions on HTTP servers are handed over to `serve`, and their windows join it.
#[tokio::test]
async fn serve_takes_over_the_sessions_on_http_servers() {
    let home = Home::new();
    let server = TestServer::http(&["--era", "legacy"]).await;
    let mut window = remote(&home, &server, "far");
    window.greet().await;
    assert_eq!(window.count().await, "1");
    let log = home.0.path().join("serve.log");
    let mut gateway = serve(&home).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let logged = || std::fs::read_to_string(&log).unwrap();
    until("gateway", || logged().contains("stayput listens on")).await;
    assert!(logged().contains("1 sessions go on here"), "{}", logged());
    assert_eq!(window.count().await, "2", "the session goes on");
    let status: Value =
        serde_json::from_slice(&run(&home, &["status", "--json"]).await.stdout).unwrap();
    assert_eq!(status["process"]["role"], "serve", "{status}");
    assert_eq!(status["process"]["pid"], gateway.id().unwrap());
    assert!(home.daemons().is_empty());
    let refused = run(&home, &["stop", "--yes"]).await;
    assert!(text(&refused.stderr).contains("stop it where it was started"), "{refused:?}");
    assert!(window.close().await.success());
    crate::kit::kill(gateway.id().unwrap(), "-TERM");
    assert!(gateway.wait().await.unwrap().success());
}

/// Holder of the sessions that reports the process id of another process. SIGTERM makes it leave a file.
const IMPOSTOR: &str = r#"
import json, os, signal, socket, sys
path, victim, told = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def ended(*_):
    open(told, "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, ended)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
open(told + ".ready", "w").close()
while True:
    connection, _ = listener.accept()
    request = connection.recv(65536).decode()
    if not request:
        continue
    status = {"role": "background", "pid": victim, "version": "0", "sessions": {}}
    answer = status if "/admin/status" in request else {"sessions": [], "spares": [], "next": None}
    body = json.dumps(answer)
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall((head + body).encode())
"#;

/// `stop` signals the process at the other end of the socket, whatever number that process says it has.
#[tokio::test]
async fn stop_signals_the_process_that_the_kernel_names() {
    let home = Home::new();
    std::fs::create_dir_all(home.data()).unwrap();
    let mut victim =
        tokio::process::Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
    let told = home.0.path().join("told");
    let mut impostor = tokio::process::Command::new("python3")
        .args(["-c", IMPOSTOR])
        .arg(home.data().join("socket"))
        .arg(victim.id().unwrap().to_string())
        .arg(&told)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    until("holder", || told.with_extension("ready").exists()).await;
    let stopped = run(&home, &["stop", "--yes"]).await;
    assert!(stopped.status.success(), "{stopped:?}");
    until("end of the holder", || told.exists()).await;
    assert_eq!(victim.try_wait().unwrap(), None, "another process was signalled");
    victim.kill().await.unwrap();
    impostor.wait().await.unwrap();
}

/// `stop` in another container sees no process id of the holder. It signals nothing, and says where the holder is.
#[tokio::test]
async fn stop_signals_nothing_in_another_container() {
    let (home, mark) = (Home::new(), mark("stop-container"));
    let mut window = home.in_front(&mark, &["--session", "work"]);
    window.greet().await;
    assert_eq!(window.count().await, "1");
    let plain = home.command();
    let variables = plain.as_std().get_envs().filter_map(|(name, value)| Some((name, value?)));
    let refused = tokio::process::Command::new("unshare")
        .args([
            "--map-root-user",
            "--pid",
            "--fork",
            env!("CARGO_BIN_EXE_stayput"),
            "stop",
            "--yes",
        ])
        .envs(variables)
        .stdin(std::process::Stdio::null())
        .output()
        .await
        .unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(text(&refused.stderr).contains("runs in another container"), "{refused:?}");
    assert_eq!(window.count().await, "2");
    assert!(window.close().await.success());
    run(&home, &["stop", "--yes"]).await;
    gone(&mark).await;
    home.deserted().await;
}

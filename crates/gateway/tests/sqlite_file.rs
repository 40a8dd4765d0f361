//! Database file of a gateway: its names, its loss, a full disk, a restored backup.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::{TestServer, send};
use stayput_testkit::until_some;
use support::{Gateway, LONG};
use tokio::time::Instant;

fn store(gateway: &Gateway) -> PathBuf {
    gateway.folder.path().join("store.db")
}

/// Runs a second gateway on this file until it exits.
fn serve(folder: &Path, store: &Path) -> Output {
    let config = folder.join("second.json");
    let own = json!({ "store": format!("sqlite:{}", store.display()), "listen": "127.0.0.1:0" });
    fs::write(&config, json!({ "mcpServers": {}, "stayput": own }).to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(["serve", "--config"]).arg(config).env("XDG_DATA_HOME", folder.join("other"));
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LONG {
            child.kill().unwrap();
            panic!("it serves the same file: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

/// A file is one store, whatever names it has, so one gateway at a time serves it.
#[tokio::test]
async fn second_gateway_on_another_name_of_the_file_is_refused() {
    let gateway = Gateway::start(json!({})).await;
    let (file, folder) = (store(&gateway), gateway.folder.path());
    fs::create_dir(folder.join("elsewhere")).unwrap();
    let at = |name: &str| folder.join("elsewhere").join(name);
    std::os::unix::fs::symlink(&file, at("symbolic.db")).unwrap();
    fs::hard_link(&file, at("hard.db")).unwrap();
    for name in ["symbolic.db", "hard.db"] {
        let output = serve(folder, &at(name));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("another stayput"), "{name}: {text}");
    }
    // A client by the other name finds the process that holds the sessions.
    let text = String::from_utf8(serve(folder, &at("symbolic.db")).stderr).unwrap();
    assert!(text.contains(&format!("(process {})", gateway.pid())), "{text}");
}

/// Returns status and body of `/readyz`.
async fn ready(url: &str) -> (u16, String) {
    let answer = send(Method::GET, &format!("{url}/readyz"), &[], "").await.unwrap();
    let status = answer.status.as_u16();
    (status, String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap())
}

/// Waits until `/readyz` is of this status and contains this text.
async fn until_ready(url: &str, status: u16, text: &str) {
    let answered = async || {
        let (found, body) = ready(url).await;
        (found == status && body.contains(text)).then_some(())
    };
    until_some(&format!("/readyz answers {status} with {text:?}"), answered).await;
}

const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

/// SQLite goes on with a file that is gone, and its writes would be lost. The gateway says so instead, once in its
/// log, and opens no session.
#[tokio::test]
async fn lost_database_file_makes_the_gateway_not_ready() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let (file, away) = (store(&gateway), gateway.folder.path().join("away.db"));
    assert_eq!(ready(&gateway.url).await.0, 200);
    fs::rename(&file, &away).unwrap();
    let start = Instant::now();
    until_ready(&gateway.url, 503, "the database file was deleted").await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let refused = gateway.post("test", &[], HELLO).await;
    assert_eq!(refused.status, 503);
    let told = refused.json().await["error"]["message"].to_string();
    assert!(told.contains("its database file was deleted"), "{told}");
    fs::rename(&away, &file).unwrap();
    until_ready(&gateway.url, 200, "ok").await;
    assert_eq!(gateway.post("test", &[], HELLO).await.status, 200);
    fs::copy(&file, &away).unwrap();
    fs::rename(&away, &file).unwrap();
    until_ready(&gateway.url, 503, "the database file was replaced").await;
    // Time for several checks, which must not log the same again.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let log = gateway.log();
    for outage in ["deleted", "replaced by another one"] {
        let line = format!("store.db cannot be used: its database file was {outage}");
        assert_eq!(log.matches(&line).count(), 1, "{log}");
    }
    assert_eq!(log.matches("store.db can be used again").count(), 1, "{log}");
}

#[tokio::test]
async fn emptied_database_file_makes_the_gateway_not_ready() {
    let gateway = Gateway::start(json!({})).await;
    fs::File::create(store(&gateway)).unwrap();
    until_ready(&gateway.url, 503, "the database file was cut short").await;
}

/// Gateway whose store is on a small disk that only it sees.
struct OnSmallDisk {
    child: Child,
    _folder: tempfile::TempDir,
    /// The disk, as this process reaches it.
    disk: PathBuf,
    url: String,
}

impl OnSmallDisk {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (disk, config) = (folder.path().join("disk"), folder.path().join("stayput.json"));
        fs::create_dir(&disk).unwrap();
        let url = free_url();
        let store = format!("sqlite:{}", disk.join("store.db").display());
        let own = json!({ "store": store, "listen": url.trim_start_matches("http://") });
        fs::write(&config, json!({ "mcpServers": {}, "stayput": own }).to_string()).unwrap();
        let run = r#"mount -t tmpfs -o size=2m none "$1" && exec "$2" serve --config "$3""#;
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", run, "sh"]).arg(&disk);
        command.arg(env!("CARGO_BIN_EXE_stayput")).arg(config).stdin(Stdio::null());
        let child = command.spawn().unwrap();
        let disk = format!("/proc/{}/root{}", child.id(), disk.display()).into();
        Self { child, _folder: folder, disk, url }
    }
}

impl Drop for OnSmallDisk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_url() -> String {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", socket.local_addr().unwrap())
}

/// A full disk is named, because an operator can end that.
#[tokio::test]
async fn full_disk_is_named() {
    let gateway = OnSmallDisk::start();
    let start = Instant::now();
    while send(Method::GET, &format!("{}/readyz", gateway.url), &[], "").await.is_err() {
        assert!(start.elapsed() < LONG, "it does not start");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    until_ready(&gateway.url, 200, "ok").await;
    let filler = gateway.disk.join("filler");
    let full = fs::write(&filler, vec![1; 4 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    until_ready(&gateway.url, 503, "the disk of the store is full").await;
    fs::remove_file(filler).unwrap();
    until_ready(&gateway.url, 200, "ok").await;
}

/// Copies a database with its log, as a backup of a stopped gateway does. What was at `to` is gone then.
fn copy(from: &Path, to: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let [from, to] = [from, to].map(|it| format!("{}{suffix}", it.display()));
        let _ = fs::remove_file(&to);
        if fs::exists(&from).unwrap() {
            fs::copy(from, to).unwrap();
        }
    }
}

fn is_lost(answer: &Value) -> bool {
    answer["result"]["_meta"]["dev.stayput/state"]["state"] == "lost"
}

/// The server's state is newer than the restored record of its session, so the session does not go on as if nothing
/// had happened.
#[tokio::test]
async fn restored_backup_reports_its_sessions_as_lost() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let mut gateway = Gateway::start(json!({ "test": { "url": server.url() } })).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    gateway.stop();
    let (file, backup) = (store(&gateway), gateway.folder.path().join("backup.db"));
    copy(&file, &backup);
    gateway.restart().await;
    assert_eq!(client.text(&gateway, "count").await, "2", "a restart alone loses nothing");
    gateway.stop();
    copy(&backup, &file);
    gateway.restart().await;
    assert!(gateway.log().contains("like a restored backup: 1 sessions"), "{}", gateway.log());
    let told = client.call(&gateway, "count", json!({})).await;
    assert!(is_lost(&told) && told["result"]["isError"] == true, "{told}");
    assert_eq!(client.text(&gateway, "count").await, "1", "told once, and begun anew");
    gateway.kill();
    gateway.restart().await;
    assert_eq!(client.text(&gateway, "count").await, "2", "it is the current one again");
}

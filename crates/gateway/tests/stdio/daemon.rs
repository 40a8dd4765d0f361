//! Windows whose sessions are held by a daemon.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use stayput_testkit::processes;

use crate::{
    kit::{Home, kill, servers},
    support::{gone, mark, until},
};

/// Invariant 4: ten concurrent windows start one daemon. It exits after the last of them and leaves nothing behind.
#[tokio::test]
async fn ten_concurrent_windows_start_one_daemon() {
    let (home, mark) = (Home::new(), mark("daemon-ten"));
    let mut windows: Vec<_> = (0..10).map(|_| home.in_front(&mark, &[])).collect();
    for window in &mut windows {
        window.greet().await;
    }
    for window in &mut windows {
        assert_eq!(window.count().await, "1", "each has a session of its own");
    }
    assert_eq!((home.daemons().len(), servers(&mark)), (1, 10));
    let started = std::fs::read_to_string(home.data().join("daemon.log")).unwrap();
    assert!(!started.contains("another stayput"), "nobody else tried: {started}");
    let permissions = std::fs::metadata(home.data().join("socket")).unwrap().permissions();
    assert_eq!(permissions.mode() & 0o777, 0o600);
    let last = windows.pop().unwrap();
    for window in windows {
        assert!(window.close().await.success());
    }
    until("end of nine servers", || servers(&mark) == 1).await;
    assert_eq!(home.daemons().len(), 1);
    assert!(last.close().await.success());
    gone(&mark).await;
    home.deserted().await;
}

/// R054, R160: two windows with one key share a session, which survives a reload of both.
#[tokio::test]
async fn key_is_shared_by_windows_and_survives_a_reload() {
    let (home, mark) = (Home::new(), mark("daemon-key"));
    let key = ["--session", "work"];
    let (mut one, mut two) = (home.in_front(&mark, &key), home.in_front(&mark, &key));
    let mut other = home.in_front(&mark, &["--session", "play"]);
    for window in [&mut one, &mut two, &mut other] {
        window.greet().await;
    }
    assert_eq!((one.count().await, two.count().await), ("1".to_owned(), "2".to_owned()));
    assert_eq!((one.count().await, other.count().await), ("3".to_owned(), "1".to_owned()));
    assert_eq!(servers(&mark), 2);
    for window in [one, two] {
        assert!(window.close().await.success());
    }
    let mut again = home.in_front(&mark, &key);
    again.greet().await;
    assert_eq!(again.count().await, "4", "the process is the same, and nothing was lost");
    assert_eq!(servers(&mark), 2);
    for mut window in [again, other] {
        let ended = window.call("session_end", json!({})).await;
        assert_eq!(ended["result"]["structuredContent"]["ended"], true, "{ended}");
        assert!(window.close().await.success());
    }
    gone(&mark).await;
    home.deserted().await;
}

/// After `kill -9` of the daemon the call in flight gets an error and nothing runs twice. The next daemon has the same
/// session, and the loss of its process is reported.
#[tokio::test]
async fn windows_survive_the_kill_of_their_daemon() {
    let (home, mark) = (Home::new(), mark("daemon-killed"));
    let mut window = home.in_front(&mark, &[]);
    window.greet().await;
    assert_eq!(window.count().await, "1");
    let before = window.call("session_info", json!({})).await;
    let slow =
        window.send("tools/call", json!({ "name": "slow", "arguments": { "ms": 600_000 } })).await;
    let list = window.send("tools/list", json!({})).await;
    window.answer(list).await;
    let daemons = home.daemons();
    kill(daemons[0], "-KILL");
    let answer = window.answer(slow).await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(answer.to_string().contains("may or may not have been"), "{answer}");
    let lost = window.call("count", json!({})).await;
    assert_eq!(lost["result"]["_meta"]["dev.stayput/state"]["state"], "lost", "{lost}");
    assert_eq!(window.count_after_a_loss().await, "1");
    assert_eq!(window.count().await, "2");
    let after = window.call("session_info", json!({})).await;
    let session = |told: &serde_json::Value| told["result"]["structuredContent"]["session"].clone();
    assert_eq!((session(&before), session(&before).is_string()), (session(&after), true));
    assert!(!home.daemons().contains(&daemons[0]) && home.daemons().len() == 1);
    assert_eq!(servers(&mark), 1);
    assert!(window.close().await.success());
    gone(&mark).await;
    home.deserted().await;
}

/// With a memory store the next daemon knows no client. The window repeats `initialize` on its own, and the client
/// gets a report that everything is lost.
#[tokio::test]
async fn restart_on_a_memory_store_is_reported_as_a_loss() {
    let (home, mark) = (Home::new(), mark("daemon-memory"));
    let mut window = home.in_front(&mark, &["--store", "memory:"]);
    window.greet().await;
    assert_eq!(window.count().await, "1");
    let daemon = home.daemons()[0];
    kill(daemon, "-KILL");
    until("end of the daemon", || !processes::is_alive(daemon)).await;
    let mut lost = window.call("count", json!({})).await;
    // The last thread of the daemon may still have had the socket. Then the call may have run, and the next call
    // reports the loss.
    if lost["result"]["_meta"].is_null() {
        let told = lost["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(told.contains("may or may not have been carried out"), "{lost}");
        lost = window.call("count", json!({})).await;
    }
    assert_eq!(lost["result"]["_meta"]["dev.stayput/state"]["state"], "lost", "{lost}");
    assert_eq!(window.count_after_a_loss().await, "1");
    assert!(window.heard.is_empty(), "{:?}", window.heard);
    assert!(window.close().await.success());
    gone(&mark).await;
    until("end of the daemon", || home.daemons().is_empty()).await;
}

/// The session of a killed window ends. Large messages and malformed lines pass through the proxy.
#[tokio::test]
async fn killed_window_leaves_nothing() {
    let (home, mark) = (Home::new(), mark("daemon-window"));
    let mut window = home.in_front(&mark, &[]);
    window.greet().await;
    let large = "x\u{e9}".repeat(400_000);
    let said = window.text("echo", json!({ "it": large })).await;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&said).unwrap()["it"], *large);
    assert_eq!(window.text("big", json!({ "bytes": 3 << 20 })).await.len(), 3 << 20);
    for line in ["invalid_lines".to_owned(), "x".repeat(33 << 20)] {
        window.say(&line).await;
        assert_eq!(window.hear().await["error"]["code"], -32_700);
    }
    window.send("tools/call", json!({ "name": "slow", "arguments": { "ms": 600_000 } })).await;
    window.kill("-KILL");
    assert!(!window.wait().await.success());
    gone(&mark).await;
    home.deserted().await;
}

/// If the daemon cannot be started, the window ends with the reason.
#[tokio::test]
async fn daemon_that_cannot_start_is_reported() {
    let (home, mark) = (Home::new(), mark("daemon-none"));
    std::fs::write(home.0.path().join("no"), "a file").unwrap();
    let mut window = home.in_front(&mark, &["--store", "sqlite:no/such.db"]);
    assert_eq!(window.wait().await.code(), Some(1));
    assert!(window.log().contains("cannot be used"), "{}", window.log());
    let mut window = home.window(&["--server", "notes"]);
    assert_eq!(window.wait().await.code(), Some(1));
    assert!(window.log().contains("there is no server \"notes\""), "{}", window.log());
    home.deserted().await;
}

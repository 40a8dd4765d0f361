//! Programs that the test kit finds on the machine.

use std::process::{Command, Stdio};

use stayput_testkit::{mcp::TestServer, processes};

use super::kit::until;

#[test]
fn descriptors_of_this_process_are_counted() {
    let before = processes::own_open_files();
    let files: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    // Other tests of this process may open and close their own meanwhile.
    assert!(processes::own_open_files() + 25 > before + files.len());
}

#[tokio::test]
async fn grandchildren_are_found() {
    let mut sh = Command::new("sh");
    sh.args(["-c", "sleep 3600 & wait"]).stdin(Stdio::null());
    let mut child = sh.spawn().unwrap();
    until(async || processes::descendants(std::process::id()).contains(&child.id())).await;
    until(async || processes::descendants(child.id()).len() == 1).await;
    let sleep = processes::descendants(child.id())[0];
    for pid in [child.id(), sleep] {
        assert!(
            Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status().unwrap().success()
        );
    }
    child.wait().unwrap();
    until(async || !processes::is_alive(sleep)).await;
}

#[tokio::test]
async fn a_server_is_gone_when_it_is_dropped() {
    let server = TestServer::http(&["--mark", "gone-when-dropped"]).await;
    let pid = server.pid();
    assert!(processes::with_token("gone-when-dropped").contains(&pid));
    // Else the end of its input could be what ends it.
    server.freeze();
    drop(server);
    assert!(!processes::is_alive(pid));
}

#[tokio::test]
async fn a_server_that_is_started_again_has_its_port_and_nothing_else() {
    let mut server = TestServer::http(&[]).await;
    let (url, pid) = (server.url().to_owned(), server.pid());
    super::kit::Client::open(&server, &serde_json::json!({})).await;
    assert_eq!(server.counted("initialize").await, 1);
    server.restart().await;
    assert_eq!(server.url(), url);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.counted("initialize").await, 0);
}

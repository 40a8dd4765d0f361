//! Leftovers of a hub that was killed together with its watchdog.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use crate::support::{ProcessMarker, until};
use serde_json::json;
use stayput::Hub;
use stayput_testkit::{processes, program};

/// Server beside which a process runs that does not end with the server's input.
fn server(marker: &ProcessMarker) -> stayput::Stdio {
    let server = program("stayput-testserver");
    let script = format!("sleep 300 & exec {} stdio --era legacy", server.display());
    marker.apply(stayput::Stdio::new("sh").args(["-c", &script]))
}

/// Body of the other process. Does nothing when the test runner starts it.
#[tokio::test]
async fn killed_process() {
    let Ok(marker) = std::env::var("LEFT_MARKER") else { return };
    let hub = Hub::builder().server("left", server(&ProcessMarker::with_value(&marker)));
    let hub = hub.build().unwrap();
    let session = hub.session("chat").await.unwrap();
    session.call("left", "count", json!({})).await.unwrap();
    println!("\nREADY");
    std::future::pending::<()>().await;
}

/// Invariant 5: the start of the next hub ends the processes that were left.
#[tokio::test]
async fn start_ends_what_a_killed_hub_and_its_watchdog_left() {
    let marker = ProcessMarker::new();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "leftovers::killed_process", "--nocapture", "--test-threads=1"]);
    command.env("LEFT_MARKER", marker.value()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut other = command.spawn().unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "READY"));
    let is_shell = |pid: &u32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').next().is_some_and(|name| name.ends_with("sh"))
    };
    // The only shell that is left is the watchdog: the server has replaced its own.
    let watchdogs = || -> Vec<u32> {
        processes::descendants(other.id()).into_iter().filter(is_shell).collect()
    };
    // On a busy machine it may not run its shell yet.
    until("the watchdog is the only shell", || watchdogs().len() == 1).await;
    let both = [other.id(), watchdogs()[0]].map(|pid| pid.to_string());
    assert!(Command::new("kill").arg("-9").args(both).status().unwrap().success());
    other.wait().unwrap();
    // Another hub that starts on this machine may end it earlier.
    let hub = Hub::builder().server("left", server(&marker)).build().unwrap();
    marker.wait_until_gone().await;
    drop(hub);
}

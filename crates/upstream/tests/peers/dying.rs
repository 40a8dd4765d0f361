//! Browsers after a kill of the process that holds them.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use stayput_testkit::peers;
use tokio::{
    runtime::Runtime,
    time::{Instant, sleep},
};

use crate::{
    browser::{Browser, frozen, page},
    kit::{Token, Way, alive, open, tool},
    support::{place, until},
};

/// Stayput process that is killed. Does nothing when the harness runs it.
#[test]
fn the_victim() {
    let Ok(way) = std::env::var("VICTIM_WAY") else { return };
    let way = if way == "wardened" { Way::Wardened } else { Way::Local };
    Runtime::new().unwrap().block_on(async {
        let (links, browser) = (way.links(), Browser::new());
        let link = open(&links, &browser.server, &place()).await;
        tool(&link, "browser_navigate", &page("apples")).await;
        println!("\nREADY {}", browser.token.as_str());
        sleep(Duration::from_secs(60)).await;
    });
}

/// Invariant 5, R032: no process outlives `kill -9`, not even a browser in its own process group.
async fn nothing_outlives_a_kill(way: &str) {
    // Folder for all files of the victim.
    let temporary = tempfile::Builder::new().prefix("victim").tempdir().unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "dying::the_victim", "--nocapture"]);
    victim.env("VICTIM_WAY", way).env("TMPDIR", temporary.path());
    let mut victim = victim.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(victim.stdout.take().unwrap());
    let token = tokio::task::spawn_blocking(move || {
        let mut lines = said.lines().map_while(Result::ok);
        lines.find_map(|line| line.strip_prefix("READY ").map(str::to_owned))
    });
    let token = Token::of(&token.await.unwrap().expect("the victim is ready"));
    let mut before = token.tree();
    frozen(&before);
    // Including the warden or watchdog.
    before.extend(stayput_testkit::processes::descendants(victim.id()));

    victim.kill().unwrap();
    let killed = Instant::now();
    victim.wait().unwrap();
    until("the end of all", || alive(&before).is_empty()).await;
    println!("{way}: nothing lives {:?} after kill -9", killed.elapsed());
    assert_eq!(token.tree(), [0_u32; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_browser_outlives_a_killed_process_with_a_warden() {
    if !peers::are_left_out() {
        nothing_outlives_a_kill("wardened").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_browser_outlives_a_killed_process_with_local_children() {
    if !peers::are_left_out() {
        nothing_outlives_a_kill("local").await;
    }
}

//! What is left of links when their process is killed.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio as Std},
    time::Duration,
};

use stayput_testkit::{
    processes::{is_alive, with_token},
    program,
};
use stayput_upstream::{
    Folders, LinkSettings, Links, PooledLink, Server, Stdio,
    process::{Processes, WardenCommand, warden_main},
};
use tokio::{
    runtime::{Handle, Runtime},
    time::Instant,
};

use crate::world::{call, open, place, quick, server_with, until};

/// How many links there are.
const LINKS: usize = 20;

/// What a server does before it serves, and none wants to go: each leaves its group, its session or its
/// parent in a way of its own.
const WILD: [&str; 4] = [
    "",
    "setsid sleep TOKEN &",
    "(setsid sh -c '(sleep TOKEN &); sleep TOKEN' &);",
    "(sleep TOKEN | sleep TOKEN &);",
];

/// What has no mark any more, and is found by a warden only.
const SCRUBBED: &str =
    r#"(setsid env -i /bin/sh -c 'trap "" TERM; /bin/sleep TOKEN & /bin/sleep TOKEN' &);"#;

/// What the test runs as its warden. Run by the harness like the others, it is nothing.
#[test]
fn the_warden() {
    if std::env::var_os("STAYPUT_WARDEN").is_some() {
        let _ = warden_main();
    }
}

/// The process that is to be killed. Run by the harness like the others, it is nothing.
#[test]
fn the_victim() {
    let Ok(token) = std::env::var("VICTIM") else { return };
    let wardened = std::env::var_os("VICTIM_WARDENED").is_some();
    Runtime::new().unwrap().block_on(async {
        let runtime = Handle::current();
        let processes = if wardened {
            let args = ["--exact", "killed::the_warden", "--nocapture", "--test-threads=1"];
            let warden = WardenCommand::new(std::env::current_exe().unwrap(), args);
            Processes::wardened(warden, runtime.clone())
        } else {
            Processes::local(runtime.clone())
        };
        let links =
            Links::new(LinkSettings::new(processes, Folders::temporary().unwrap()), runtime);
        let mut held: Vec<PooledLink> = Vec::new();
        for number in 0..LINKS {
            let wild = if wardened && number % 5 == 4 { SCRUBBED } else { WILD[number % 4] };
            let link = open(&links, &wild_server(wild, &token), &place()).await;
            assert_eq!(call(&link, "count", "{}").await, "1");
            held.push(link);
        }
        println!("\nREADY");
        std::future::pending::<()>().await;
    });
}

/// A server that ignores whatever it is told, beside what it has let loose.
fn wild_server(wild: &str, token: &str) -> Server {
    let server = program("stayput-testserver");
    let script = format!(
        "trap '' TERM HUP INT; {} exec {} stdio --ignore-eof --ignore-term --daemonize",
        wild.replace("TOKEN", token),
        server.display()
    );
    server_with(Stdio::new("sh").args(["-c", &script]).env("KIT", token), quick())
}

fn alive(token: &str) -> Vec<u32> {
    with_token(token).into_iter().filter(|pid| is_alive(*pid)).collect()
}

/// Kills whatever is left when a test fails.
struct Token(String);

impl Drop for Token {
    fn drop(&mut self) {
        crate::world::kill(&self.0);
    }
}

/// Invariant 5, R032: two seconds after `kill -9` of a process with links nothing lives of them.
async fn nothing_outlives_a_kill(wardened: bool) {
    // A number, so that `sleep` takes it.
    let token = Token(format!("78{:07}{}", std::process::id(), u8::from(wardened)));
    // Built, if it has to be, before anybody waits for it.
    let _ = program("stayput-testserver");
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "killed::the_victim", "--nocapture"]).env("VICTIM", &token.0);
    if wardened {
        victim.env("VICTIM_WARDENED", "1");
    }
    let mut victim = victim.stdin(Std::null()).stdout(Std::piped()).spawn().unwrap();
    let said = BufReader::new(victim.stdout.take().unwrap());
    assert!(said.lines().map_while(Result::ok).any(|line| line == "READY"), "the links are open");
    // Each server has started a process that left, and most have more.
    until("all of them", || alive(&token.0).len() > 3 * LINKS).await;

    victim.kill().unwrap();
    let killed = Instant::now();
    victim.wait().unwrap();
    until("the end of all", || alive(&token.0).is_empty()).await;
    let took = killed.elapsed();
    // Two seconds is what is promised; the rest is for a machine that is busy with other tests.
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn nothing_outlives_killed_links_with_local_children() {
    nothing_outlives_a_kill(false).await;
}

#[tokio::test]
async fn nothing_outlives_killed_links_with_a_warden() {
    nothing_outlives_a_kill(true).await;
}

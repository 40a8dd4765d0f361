//! Remains of links after a kill of their process.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio as Std},
    time::Duration,
};

use stayput_process::{Processes, WardenCommand, warden_main};
use stayput_testkit::{
    processes::{is_alive, with_token},
    program,
};
use stayput_upstream::{LinkSettings, Links, PooledLink, Server, SessionDirs, Stdio};
use tokio::{
    runtime::{Handle, Runtime},
    time::Instant,
};

use crate::support::{call, open, place, quick, server_with, until};

/// Number of links.
const LINKS: usize = 20;

/// Commands that a server runs before it serves. The processes leave their group, session or parent in different ways,
/// and ignore signals.
const WILD: [&str; 4] = [
    "",
    "setsid sleep TOKEN &",
    "(setsid sh -c '(sleep TOKEN &); sleep TOKEN' &);",
    "(sleep TOKEN | sleep TOKEN &);",
];

/// Processes without a mark, which only a warden finds.
const SCRUBBED: &str =
    r#"(setsid env -i /bin/sh -c 'trap "" TERM; /bin/sleep TOKEN & /bin/sleep TOKEN' &);"#;

/// Warden of the test. Does nothing when the harness runs it.
#[test]
fn the_warden() {
    if std::env::var_os("STAYPUT_WARDEN").is_some() {
        let _ = warden_main();
    }
}

/// Process that is killed. Does nothing when the harness runs it.
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
            Links::new(LinkSettings::new(processes, SessionDirs::temporary().unwrap()), runtime);
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

/// Server that ignores signals, in addition to its stray processes.
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

/// Kills what is left when a test fails.
struct Token(String);

impl Drop for Token {
    fn drop(&mut self) {
        crate::support::kill(&self.0);
    }
}

/// Invariant 5, R032: two seconds after `kill -9` of a process with links, none of their processes lives.
async fn nothing_outlives_a_kill(wardened: bool) {
    // A number, so that `sleep` accepts it.
    let token = Token(format!("78{:07}{}", std::process::id(), u8::from(wardened)));
    // Builds the server, if necessary, before the timing starts.
    let _ = program("stayput-testserver");
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "killed::the_victim", "--nocapture"]).env("VICTIM", &token.0);
    if wardened {
        victim.env("VICTIM_WARDENED", "1");
    }
    let mut victim = victim.stdin(Std::null()).stdout(Std::piped()).spawn().unwrap();
    let said = BufReader::new(victim.stdout.take().unwrap());
    assert!(said.lines().map_while(Result::ok).any(|line| line == "READY"), "the links are open");
    // Each server has started a process that left its group, and most have started more.
    until("all of them", || alive(&token.0).len() > 3 * LINKS).await;

    victim.kill().unwrap();
    let killed = Instant::now();
    victim.wait().unwrap();
    until("the end of all", || alive(&token.0).is_empty()).await;
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn no_process_outlives_killed_links_with_local_children() {
    nothing_outlives_a_kill(false).await;
}

#[tokio::test]
async fn no_process_outlives_killed_links_with_a_warden() {
    nothing_outlives_a_kill(true).await;
}

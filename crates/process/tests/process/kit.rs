//! Helpers of all process tests.

use std::{
    fs,
    future::Future,
    path::Path,
    pin::pin,
    sync::atomic::{AtomicU32, Ordering},
    task::Poll,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use stayput_process::{Child, Pipes, Processes, Program, WardenCommand};
pub(crate) use stayput_testkit::until;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::Handle,
};

/// Timeout far above the duration of any step here.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Makes two tests of one: `name::local` and `name::wardened`.
macro_rules! both_ways {
    ($($(#[$note:meta])* async fn $name:ident($kit:ident) $body:block)*) => {$(
        $(#[$note])*
        mod $name {
            #[allow(unused_imports, reason = "not every test needs all")]
            use super::*;

            async fn test($kit: &crate::kit::Kit) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn local() {
                let kit = crate::kit::Kit::new(crate::kit::Way::Local);
                test(&kit).await;
                kit.finish().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn wardened() {
                let kit = crate::kit::Kit::new(crate::kit::Way::Wardened);
                test(&kit).await;
                kit.finish().await;
            }
        }
    )*};
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Local,
    Wardened,
}

impl Way {
    pub(crate) fn processes(self, runtime: &Handle) -> Processes {
        match self {
            Self::Local => Processes::local(runtime.clone()),
            Self::Wardened => {
                let me = std::env::current_exe().unwrap();
                let args = ["--exact", "the_warden", "--nocapture", "--test-threads=1"];
                Processes::wardened(WardenCommand::new(me, args), runtime.clone())
            }
        }
    }
}

/// Set of processes, and a number that only these processes have in their arguments or environment.
pub(crate) struct Kit {
    pub(crate) processes: Processes,
    pub(crate) token: Token,
}

/// Token of a [`Kit`]. Dropping it kills the processes that have it, so that a failed test leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Token(String);

impl std::ops::Deref for Token {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        for pid in alive(self) {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

static TOKENS: AtomicU32 = AtomicU32::new(0);

/// Returns a number, so that `sleep` accepts it.
pub(crate) fn token() -> Token {
    let count = TOKENS.fetch_add(1, Ordering::Relaxed);
    Token(format!("77{:07}{count:04}", std::process::id()))
}

impl Kit {
    pub(crate) fn new(way: Way) -> Self {
        Self { processes: way.processes(&Handle::current()), token: token() }
    }

    pub(crate) fn sh(&self, script: &str) -> Program {
        sh(&self.token, script)
    }

    pub(crate) async fn start(&self, script: &str) -> Child {
        self.processes.start(&self.sh(script)).await.unwrap()
    }

    /// Starts a script that prints `ready` when all its processes run.
    pub(crate) async fn ready(&self, script: &str) -> (Child, Pipes) {
        let mut child = self.start(script).await;
        let mut pipes = child.take_pipes().unwrap();
        assert_eq!(line(&mut pipes).await, "ready");
        (child, pipes)
    }

    /// Unrelated child, with a check that it is not affected.
    pub(crate) async fn bystander(&self) -> Bystander {
        let program = Program { env: Vec::new(), ..sh("", "exec cat") };
        let child = self.processes.start(&program).await.unwrap();
        Bystander(child)
    }

    pub(crate) fn alive(&self) -> Vec<i32> {
        alive(&self.token)
    }

    /// Waits until this many processes have the token.
    pub(crate) async fn count(&self, wanted: usize) {
        until(&format!("{wanted} processes"), || self.alive().len() == wanted).await;
    }

    pub(crate) async fn finish(&self) {
        self.processes.close().await;
        assert_eq!(self.processes.live(), 0);
        assert_eq!(self.alive(), [0_i32; 0], "nothing is left behind");
    }
}

pub(crate) struct Bystander(Child);

impl Bystander {
    pub(crate) fn is_well(&self) {
        assert!(self.0.exited().is_none() && runs(pid(&self.0)));
    }
}

/// Runs `script` with every `TOKEN` replaced.
pub(crate) fn sh(token: &str, script: &str) -> Program {
    Program {
        command: "sh".into(),
        args: vec!["-c".into(), script.replace("TOKEN", token).into()],
        env: vec![
            ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
            ("KIT".into(), token.into()),
        ],
        cwd: None,
    }
}

/// Returns the running processes with the token in their environment or arguments.
pub(crate) fn alive(token: &str) -> Vec<i32> {
    let has = |path: String| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(token.len()).any(|part| part == token.as_bytes())
    };
    let mut found = pids();
    found.retain(|pid| {
        (has(format!("/proc/{pid}/environ")) || has(format!("/proc/{pid}/cmdline"))) && runs(*pid)
    });
    found
}

pub(crate) fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Returns a field of `/proc/PID/stat`, counted from the state, which is 0.
pub(crate) fn stat(pid: i32, field: usize) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = text.rsplit_once(')')?.1;
    rest.split_ascii_whitespace().nth(field).map(str::to_owned)
}

pub(crate) fn runs(pid: i32) -> bool {
    stat(pid, 0).is_some_and(|state| state != "Z" && state != "X")
}

pub(crate) fn parent(pid: i32) -> i32 {
    stat(pid, 1).unwrap().parse().unwrap()
}

pub(crate) fn pid(child: &Child) -> i32 {
    child.pid().try_into().unwrap()
}

pub(crate) fn exists(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Returns the next output line of the child.
pub(crate) async fn line(pipes: &mut Pipes) -> String {
    let mut line = Vec::new();
    loop {
        match pipes.stdout.read_u8().await {
            Ok(b'\n') | Err(_) => return String::from_utf8(line).unwrap(),
            Ok(byte) => line.push(byte),
        }
    }
}

/// Writes `said` and returns all output of the child until it closes its stdout.
pub(crate) async fn answer(mut pipes: Pipes, said: &str) -> String {
    pipes.stdin.write_all(said.as_bytes()).await.unwrap();
    drop(pipes.stdin);
    let mut text = String::new();
    pipes.stdout.read_to_string(&mut text).await.unwrap();
    text
}

/// Polls a future this many times, and drops it if it is not complete.
pub(crate) async fn poll_times<T>(times: u32, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = times;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        let polled = future.as_mut().poll(context).map(Some);
        if left == 0 && polled.is_pending() { Poll::Ready(None) } else { polled }
    })
    .await
}

//! Running program between a client and the counter.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use stayput_testkit::processes::{descendants, memory};
use tempfile::TempDir;

use super::{
    client::Client,
    session::{Session, Target},
};
use crate::server::counter;

/// Timeout until a program answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// Started program with its own folder. Dropping it ends it.
pub(super) struct Running {
    pub(super) name: &'static str,
    pub(super) target: Target,
    child: Option<Child>,
    folder: Option<TempDir>,
}

impl Running {
    /// Connects directly to the counter.
    pub(super) fn direct(url: &str) -> Self {
        Self { name: "direct", target: target(url), child: None, folder: None }
    }

    /// Starts the command for a free port and a folder, and waits until it answers.
    pub(super) async fn start(
        name: &'static str,
        path: &str,
        command: impl FnOnce(u16, &Path) -> Command,
    ) -> Result<Self, String> {
        Self::start_as("", name, path, command).await
    }

    /// Starts it with these header lines on its requests.
    pub(super) async fn start_as(
        more: &str,
        name: &'static str,
        path: &str,
        command: impl FnOnce(u16, &Path) -> Command,
    ) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut command = command(port, folder.path());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
        let child = command.spawn().map_err(|error| format!("it does not start: {error}"))?;
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let target = Target { address, path: path.to_owned(), more: more.to_owned() };
        let running = Self { name, target, child: Some(child), folder: Some(folder) };
        running.answers().await?;
        Ok(running)
    }

    async fn answers(&self) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let tried = async {
                let mut client = Client::connect(self.target.address).await?;
                let mut session = Session::open(&mut client, &self.target).await?;
                session.count(&mut client).await?;
                session.end(&mut client, &self.target).await
            };
            let tried = tokio::time::timeout(PATIENCE, tried).await;
            match tried.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                Ok(()) => return Ok(()),
                Err(error) if start.elapsed() > PATIENCE => {
                    let log = self.folder.as_ref().map(|folder| folder.path().join("log"));
                    let log = log.and_then(|log| fs::read_to_string(log).ok()).unwrap_or_default();
                    let last: Vec<_> = log.lines().rev().take(3).collect();
                    return Err(format!("it does not answer: {error}; {}", last.join(" | ")));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Returns itself and its descendants except the counters, which do the same work behind every contender.
    fn processes(&self) -> Vec<u32> {
        let Some(child) = &self.child else { return Vec::new() };
        let mut all = descendants(child.id());
        all.push(child.id());
        all.retain(|pid| !is_counter(*pid));
        all
    }

    /// Waits until all its counters have ended, so that their end does not disturb the next contender.
    pub(super) async fn counters_are_gone(&self) {
        let Some(child) = &self.child else { return };
        let start = Instant::now();
        while descendants(child.id()).into_iter().any(is_counter) && start.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns its processor time so far.
    pub(super) fn cpu(&self) -> Duration {
        self.processes().into_iter().map(cpu).sum()
    }

    /// Returns the largest resident memory of its first process so far, in bytes.
    pub(super) fn peak_memory(&self) -> u64 {
        let Some(child) = &self.child else { return 0 };
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        kilobytes.unwrap_or(0_u64) << 10
    }

    /// Returns its memory in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.processes().into_iter().map(memory).sum()
    }
}

fn is_counter(pid: u32) -> bool {
    let counter = Path::new(&counter()).canonicalize().ok();
    fs::read_link(format!("/proc/{pid}/exe")).ok() == counter
}

/// Returns the run time of the threads of a process, as counted by the scheduler.
fn cpu(pid: u32) -> Duration {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let nanos = threads.filter_map(|thread| {
        let said = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        said.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

fn target(url: &str) -> Target {
    let rest = url.strip_prefix("http://").unwrap();
    let (address, path) = rest.split_once('/').unwrap();
    let address = address.parse::<SocketAddr>().unwrap();
    Target { address, path: format!("/{path}"), more: String::new() }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).unwrap();
        let _ = kill_process_group(group, Signal::TERM);
        for _ in 0..100 {
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        // Kills what did not end by itself, and the rest of the process group.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.wait();
    }
}

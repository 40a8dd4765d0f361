//! Processes on this machine, from Linux `/proc`.

use std::{fs, os::fd::OwnedFd, path::PathBuf, task::Poll};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::{Interest, unix::AsyncFd};

/// Returns the processes whose environment or command line contains `token`, except this one.
#[must_use]
pub fn with_token(token: &str) -> Vec<u32> {
    let holds = |pid: u32, file: &str| {
        let said = fs::read(of(pid).join(file)).unwrap_or_default();
        said.windows(token.len()).any(|part| part == token.as_bytes())
    };
    let me = std::process::id();
    let mut found = all();
    found.retain(|pid| *pid != me && (holds(*pid, "environ") || holds(*pid, "cmdline")));
    found
}

/// Returns the children of a process, their children, and so on.
#[must_use]
pub fn descendants(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> =
        all().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.remove(0);
    found
}

/// Returns whether a process runs; a zombie does not.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| !["Z", "X"].contains(&fields[0].as_str()))
}

/// Waits until one of these processes has exited. The kernel reports the exit; nothing is polled.
pub async fn wait_for_exit(pids: &[u32]) {
    // A process without a descriptor has exited before.
    let Some(descriptors) = pids.iter().map(exit_of).collect::<Option<Vec<_>>>() else { return };
    let mut exits: Vec<_> = descriptors.iter().map(|it| Box::pin(it.readable())).collect();
    std::future::poll_fn(|cx| {
        match exits.iter_mut().any(|exit| exit.as_mut().poll(cx).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

/// Returns a descriptor that is readable once the process has exited.
#[allow(
    deprecated,
    reason = "its successor is unsafe for types that do not own their descriptor; this one owns it"
)]
fn exit_of(pid: &u32) -> Option<AsyncFd<OwnedFd>> {
    let pid = Pid::from_raw(i32::try_from(*pid).ok()?)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    AsyncFd::with_interest(process, Interest::READABLE).ok()
}

/// Waits until no process has this token in its environment or command line.
pub async fn wait_until_gone(token: &str) {
    loop {
        let left = with_token(token);
        if left.is_empty() {
            return;
        }
        wait_for_exit(&left).await;
        // A process without a descriptor may be listed for a moment longer.
        tokio::task::yield_now().await;
    }
}

/// Counts the open files, sockets and pipes of a process.
#[must_use]
pub fn open_files(pid: u32) -> usize {
    fs::read_dir(of(pid).join("fd")).map_or(0, Iterator::count)
}

/// Counts those of this process.
#[must_use]
pub fn own_open_files() -> usize {
    // The folder that is being read is one of them.
    open_files(std::process::id()).saturating_sub(1)
}

/// Returns the resident memory of a process in bytes.
#[must_use]
pub fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(of(pid).join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

fn of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Returns all running processes.
fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_alive(*pid)).collect()
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// Returns the fields from state and parent on. The name before them may contain any characters, and ends at the last
/// `)`.
fn stat(pid: u32) -> Option<Vec<String>> {
    let line = fs::read_to_string(of(pid).join("stat")).ok()?;
    let (_, fields) = line.rsplit_once(") ")?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

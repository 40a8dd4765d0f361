//! What runs on this machine, as Linux tells it.

use std::{fs, path::PathBuf};

/// The processes whose environment or command line holds `token`, this one excepted.
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

/// The children of a process, their children, and so on.
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

/// Whether a process runs; one that has ended and was not waited for does not.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| !["Z", "X"].contains(&fields[0].as_str()))
}

/// How many files, sockets and pipes a process has open.
#[must_use]
pub fn open_files(pid: u32) -> usize {
    fs::read_dir(of(pid).join("fd")).map_or(0, Iterator::count)
}

/// How many this process has open.
#[must_use]
pub fn own_open_files() -> usize {
    // The folder that is being read is one of them.
    open_files(std::process::id()).saturating_sub(1)
}

/// How much memory a process has in use, in bytes.
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

/// Every process that runs.
fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_alive(*pid)).collect()
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// State, parent and what follows. The name before them may hold anything, and ends at the last `)`.
fn stat(pid: u32) -> Option<Vec<String>> {
    let line = fs::read_to_string(of(pid).join("stat")).ok()?;
    let (_, fields) = line.rsplit_once(") ")?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

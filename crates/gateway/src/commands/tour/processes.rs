//! Processes of this machine, from `/proc`.

use std::{fs, path::Path};

/// Process, identified by its pid and start time, because pids are reused.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pid: u32,
    started: u64,
    command: String,
}

impl Process {
    /// Whether it still runs. A zombie does not.
    pub(super) fn lives(&self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.started == self.started && stat.runs)
    }

    /// Whether its command line contains this argument.
    pub(super) fn has_word(&self, word: &str) -> bool {
        self.command.split('\0').any(|it| it == word)
    }
}

/// Whether `/proc` is available.
pub(super) fn is_possible() -> bool {
    Path::new("/proc/self/stat").exists()
}

/// Returns all descendants of `root`.
pub(super) fn below(root: u32) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<_> = pids.filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
    let mut parents = vec![root];
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        for (pid, stat) in all.iter().filter(|(_, stat)| stat.parent == parent && stat.runs) {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).into_owned();
            found.push(Process { pid: *pid, started: stat.started, command });
            parents.push(*pid);
        }
    }
    found
}

/// Fields of `/proc/PID/stat`.
struct Stat {
    runs: bool,
    parent: u32,
    started: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The process name comes first and may contain any character. It ends at the last parenthesis.
        let (_, fields) = line.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split_ascii_whitespace().collect();
        Some(Self {
            runs: !matches!(*fields.first()?, "Z" | "X"),
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn child_is_listed_until_it_exits() {
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let found = below(std::process::id());
        let found = found.iter().find(|it| it.pid == child.id()).unwrap();
        assert!(found.lives() && found.has_word("600") && !found.has_word("60"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!found.lives());
    }
}

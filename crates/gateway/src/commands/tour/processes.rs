//! Who runs on this machine, as Linux tells it.

use std::{fs, path::Path};

/// A process that was seen. A later one with its number is another one.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pid: u32,
    started: u64,
    command: String,
}

impl Process {
    /// Whether it still runs. One that has ended and was not waited for does not.
    pub(super) fn lives(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.started == self.started && stat.runs)
    }

    /// Whether it was started with this word.
    pub(super) fn has_word(&self, word: &str) -> bool {
        self.command.split('\0').any(|it| it == word)
    }
}

/// Whether there is anything to be seen.
pub(super) fn is_possible() -> bool {
    Path::new("/proc/self/stat").exists()
}

/// All that descends from `root`, without it.
pub(super) fn below(root: u32) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<_> = pids.filter_map(|pid| Some((pid, Stat::of(pid)?))).collect();
    let mut family = vec![root];
    let mut found = Vec::new();
    while let Some(parent) = family.pop() {
        for (pid, stat) in all.iter().filter(|(_, stat)| stat.parent == parent && stat.runs) {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).into_owned();
            found.push(Process { pid: *pid, started: stat.started, command });
            family.push(*pid);
        }
    }
    found
}

/// What is needed of a line of `/proc/PID/stat`.
struct Stat {
    runs: bool,
    parent: u32,
    started: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before them may hold anything, and ends at the last parenthesis.
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
    fn a_child_is_seen_until_it_is_gone() {
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let found = below(std::process::id());
        let found = found.iter().find(|it| it.pid == child.id()).unwrap();
        assert!(found.lives() && found.has_word("600") && !found.has_word("60"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!found.lives());
    }
}

//! Reads processes from `/proc`.

use std::{collections::HashMap, fs, os::unix::fs::MetadataExt, path::Path, sync::LazyLock};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, geteuid, kill_process, pidfd_open, pidfd_send_signal},
};

/// Largest tree below one root. A larger one is a misreading.
const TREE_LIMIT: usize = 1 << 17;

/// `PF_KTHREAD` of the kernel.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Whether the kernel lists the children of a process; not every kernel is built that way.
static LISTS_CHILDREN: LazyLock<bool> =
    LazyLock::new(|| Path::new("/proc/thread-self/children").exists());

/// Identity of a process: its pid, and its start time, which tells it apart from a later process with the same
/// pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ProcessRef {
    pub(super) pid: i32,
    pub(super) started: u64,
}

impl ProcessRef {
    /// Returns the process that has `pid` now, even if it is a zombie.
    pub(super) fn at(pid: i32) -> Option<Self> {
        Stat::read(pid).map(|stat| Self { pid, started: stat.started })
    }

    /// Returns whether the process still runs. A zombie does not.
    pub(super) fn lives(self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.started == self.started && stat.runs)
    }

    /// Sends a signal to this process, and never to a later one with its pid.
    pub(super) fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        // The pidfd pins the process that has the pid now; the check after it tells whether that is this
        // process.
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(held) if Self::at(self.pid) == Some(self) => {
                let _ = pidfd_send_signal(held, signal);
            }
            Ok(_) | Err(Errno::SRCH) => {}
            // No descriptor is free, or the kernel has no pidfds.
            Err(_) if Self::at(self.pid) == Some(self) => {
                let _ = kill_process(pid, signal);
            }
            Err(_) => {}
        }
    }
}

/// Fields of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stat {
    pub(super) parent: i32,
    pub(super) group: i32,
    started: u64,
    pub(super) runs: bool,
    /// Whether it is a kernel thread, which looks like a process of root.
    pub(super) kernel: bool,
}

impl Stat {
    pub(super) fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(line: &[u8]) -> Option<Self> {
        // The name may contain parentheses and spaces, so the last parenthesis ends it.
        let name_end = line.iter().rposition(|byte| *byte == b')')?;
        let rest = str::from_utf8(line.get(name_end + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let threads: u64 = fields.get(17)?.parse().ok()?;
        let state = *fields.first()?;
        let flags: u64 = fields.get(6)?.parse().ok()?;
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            // A process whose main thread has ended looks like a zombie while its other threads run.
            runs: !matches!(state, "Z" | "X" | "x") || threads > 1,
            kernel: flags & KERNEL_THREAD != 0,
        })
    }
}

/// Returns the current descendants of `root`, without `root`.
pub(super) fn below(root: i32) -> Vec<ProcessRef> {
    let family = ChildLists::now();
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        for child in family.children(pid) {
            if found.len() < TREE_LIMIT
                && let Some(process) = ProcessRef::at(child)
            {
                found.push(process);
                next.push(child);
            }
        }
    }
    found
}

/// Returns the current children of `pid`, including zombies.
pub(super) fn children(pid: i32) -> Vec<i32> {
    ChildLists::now().children(pid)
}

/// Returns the parent of `pid`, the parent of that, and so on.
pub(super) fn ancestors(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut at = pid;
    while let Some(stat) = Stat::read(at) {
        if stat.parent <= 0 || found.contains(&stat.parent) {
            break;
        }
        at = stat.parent;
        found.push(at);
    }
    found
}

/// Children of processes: read one by one, or all at once where the kernel has no such list.
enum ChildLists {
    Listed,
    Known(HashMap<i32, Vec<i32>>),
}

impl ChildLists {
    fn now() -> Self {
        if *LISTS_CHILDREN {
            return Self::Listed;
        }
        let mut known: HashMap<i32, Vec<i32>> = HashMap::new();
        for pid in pids() {
            if let Some(stat) = Stat::read(pid) {
                known.entry(stat.parent).or_default().push(pid);
            }
        }
        Self::Known(known)
    }

    fn children(&self, pid: i32) -> Vec<i32> {
        if let Self::Known(known) = self {
            return known.get(&pid).cloned().unwrap_or_default();
        }
        let mut found = Vec::new();
        // The kernel lists a child under the thread that started it.
        for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
        found
    }
}

/// Returns all processes of the current user.
pub(super) fn ours() -> Vec<i32> {
    let user = geteuid().as_raw();
    let of_user =
        |pid: &i32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|folder| folder.uid() == user);
    pids().filter(of_user).collect()
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the proportional memory of a process (PSS), in bytes: a page that several processes share counts for each of
/// them in equal parts. Where the kernel does not tell it, the resident memory.
pub(super) fn memory(pid: i32) -> Option<u64> {
    let read = |file: &str, name: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes * 1024)
    };
    read("smaps_rollup", "Pss:").or_else(|| read("status", "VmRSS:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_looks_like_fields_is_skipped() {
        let line = b"12 (a) Z 1 (b) S 7 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.parent, stat.group, stat.started, stat.runs), (7, 9, 4711, true));
    }

    #[test]
    fn process_with_ended_main_thread_still_runs() {
        let line = |threads| format!("12 (a) Z 7 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 5 0");
        assert!(Stat::parse(line(3).as_bytes()).unwrap().runs);
        assert!(!Stat::parse(line(0).as_bytes()).unwrap().runs);
    }

    #[test]
    fn truncated_line_is_rejected() {
        for line in ["", "1", "1 (a)", "1 (a) S 1 1"] {
            assert!(Stat::parse(line.as_bytes()).is_none(), "{line}");
        }
    }

    #[test]
    fn own_process_is_found() {
        let me = rustix::process::getpid().as_raw_pid();
        assert!(ProcessRef::at(me).unwrap().lives());
        assert!(!ProcessRef { pid: me, started: 1 }.lives());
        assert!(ours().contains(&me) && memory(me).unwrap() > 0);
        assert!(!ancestors(me).is_empty());
    }
}

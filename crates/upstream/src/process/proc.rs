//! What `/proc` tells of processes.

use std::{collections::HashMap, fs, os::unix::fs::MetadataExt, path::Path, sync::LazyLock};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, geteuid, kill_process, pidfd_open, pidfd_send_signal},
};

use super::mark::LINK;

/// More processes than this below one root are not a tree but a misreading.
const TREE_LIMIT: usize = 1 << 17;

/// `PF_KTHREAD` of the kernel.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Whether the kernel lists the children of a process; not all are built so.
static LISTS_CHILDREN: LazyLock<bool> =
    LazyLock::new(|| Path::new("/proc/thread-self/children").exists());

/// A process that was seen, told apart from a later one with the same pid by its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    pub(super) pid: i32,
    pub(super) started: u64,
}

impl Seen {
    /// The process that has `pid` now, a zombie too.
    pub(super) fn at(pid: i32) -> Option<Self> {
        Stat::of(pid).map(|stat| Self { pid, started: stat.started })
    }

    /// Whether it still runs. A zombie does not.
    pub(super) fn lives(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.started == self.started && stat.runs)
    }

    /// Sends a signal to this process and to no later one with its pid.
    pub(super) fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        // The descriptor holds on to whoever has the pid now; the look after it tells who that is.
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(held) if Self::at(self.pid) == Some(self) => {
                let _ = pidfd_send_signal(held, signal);
            }
            Ok(_) | Err(Errno::SRCH) => {}
            // No descriptor is left, or the kernel has none for processes.
            Err(_) if Self::at(self.pid) == Some(self) => {
                let _ = kill_process(pid, signal);
            }
            Err(_) => {}
        }
    }
}

/// One line of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stat {
    parent: i32,
    pub(super) group: i32,
    started: u64,
    runs: bool,
    /// A thread of the kernel, which looks like a process of the superuser.
    kernel: bool,
}

impl Stat {
    pub(super) fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(line: &[u8]) -> Option<Self> {
        // The name may hold anything, parentheses and spaces too, so the last one counts.
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
            // A first thread that has ended looks like a zombie while the others go on.
            runs: !matches!(state, "Z" | "X" | "x") || threads > 1,
            kernel: flags & KERNEL_THREAD != 0,
        })
    }
}

/// All that descends from `root` now, without it.
pub(super) fn below(root: i32) -> Vec<Seen> {
    let family = Family::now();
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        for child in family.children(pid) {
            if found.len() < TREE_LIMIT
                && let Some(seen) = Seen::at(child)
            {
                found.push(seen);
                next.push(child);
            }
        }
    }
    found
}

/// The children of `pid` now, zombies too.
pub(super) fn children(pid: i32) -> Vec<i32> {
    Family::now().children(pid)
}

/// `pid`'s parent, its parent, and so on.
pub(super) fn ancestors(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut at = pid;
    while let Some(stat) = Stat::of(at) {
        if stat.parent <= 0 || found.contains(&stat.parent) {
            break;
        }
        at = stat.parent;
        found.push(at);
    }
    found
}

/// Who is whose child: asked one by one, or where the kernel has no such list, all at once.
enum Family {
    Listed,
    Known(HashMap<i32, Vec<i32>>),
}

impl Family {
    fn now() -> Self {
        if *LISTS_CHILDREN {
            return Self::Listed;
        }
        let mut known: HashMap<i32, Vec<i32>> = HashMap::new();
        for pid in pids() {
            if let Some(stat) = Stat::of(pid) {
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
        // A child belongs to the thread that started it.
        for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
        found
    }
}

/// All processes of our own user.
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

/// What the environment of a process says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Marked {
    With(String),
    No,
    /// There is no environment: it has none, or it is just becoming another program and will have one
    /// in a moment.
    Unclear,
}

impl Marked {
    pub(super) fn of(pid: i32) -> Self {
        // Not readable is not ours.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return Self::No };
        if environment.is_empty() && Stat::of(pid).is_some_and(|stat| stat.runs && !stat.kernel) {
            return Self::Unclear;
        }
        let value = environment.split(|byte| *byte == 0).find_map(|variable| {
            variable.strip_prefix(LINK.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
        });
        let mark = value.and_then(|value| String::from_utf8(value.to_vec()).ok());
        mark.map_or(Self::No, Self::With)
    }
}

/// The memory of a process that is in RAM, in bytes.
pub(super) fn resident(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let line = b"12 (a) Z 1 (b) S 7 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.parent, stat.group, stat.started, stat.runs), (7, 9, 4711, true));
    }

    #[test]
    fn a_process_whose_first_thread_ended_still_runs() {
        let line = |threads| format!("12 (a) Z 7 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 5 0");
        assert!(Stat::parse(line(3).as_bytes()).unwrap().runs);
        assert!(!Stat::parse(line(0).as_bytes()).unwrap().runs);
    }

    #[test]
    fn a_line_that_is_cut_is_none() {
        for line in ["", "1", "1 (a)", "1 (a) S 1 1"] {
            assert!(Stat::parse(line.as_bytes()).is_none(), "{line}");
        }
    }

    #[test]
    fn we_see_ourselves() {
        let me = rustix::process::getpid().as_raw_pid();
        assert!(Seen::at(me).unwrap().lives());
        assert!(!Seen { pid: me, started: 1 }.lives());
        assert!(ours().contains(&me) && resident(me).unwrap() > 0);
        assert!(!ancestors(me).is_empty());
    }
}

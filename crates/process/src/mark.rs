//! Mark in a child's environment that names the process it belongs to.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::process::getpid;

use super::procfs::{ProcessRef, Stat};

/// Environment variable that holds the mark. Processes that the child starts with its environment inherit it.
pub(super) const LINK: &str = "STAYPUT_LINK";

/// Environment variable that a warden carries instead, so that it is not taken for a child.
pub(super) const WARDEN: &str = "STAYPUT_WARDEN";

/// Counter that tells two sets of marks of one process apart where no random number is available.
static SETS: AtomicU64 = AtomicU64::new(0);

/// Marks of all children of one [`Processes`](super::Processes): `<pid namespace>.<pid>.<start
/// time>.<random>.<number>`.
#[derive(Debug, Clone)]
pub(super) struct Marks {
    prefix: Arc<str>,
}

impl Marks {
    pub(super) fn new() -> Self {
        let pid = getpid().as_raw_pid();
        let started = ProcessRef::at(pid).map_or(0, |process| process.started);
        let set = SETS.fetch_add(1, Ordering::Relaxed);
        let random = getrandom::u64().unwrap_or(set);
        let space = pid_namespace().unwrap_or(0);
        Self { prefix: format!("{space}.{pid}.{started}.{random:016x}").into() }
    }

    /// Common prefix of all marks; a dot follows it.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn mark(&self, number: u64) -> String {
        format!("{}.{number}", self.prefix)
    }
}

/// Process that made a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct MarkHolder {
    /// Pid namespace of the process; pids are unique only inside one namespace.
    pub(super) space: u64,
    pub(super) process: ProcessRef,
}

impl MarkHolder {
    pub(super) fn parse(mark: &str) -> Option<Self> {
        let mut parts = mark.split('.');
        let space = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok().filter(|pid| *pid > 0)?;
        let started = parts.next()?.parse().ok()?;
        // Skips the random part and requires the number.
        parts.nth(1)?;
        Some(Self { space, process: ProcessRef { pid, started } })
    }

    /// Returns whether the process that made the mark is of this pid namespace and does not live any more.
    pub(super) fn is_dead_here(&self) -> bool {
        pid_namespace() == Some(self.space) && !self.process.lives()
    }
}

/// Returns the number of our pid namespace: `pid:[4026531836]`.
fn pid_namespace() -> Option<u64> {
    let name = fs::read_link("/proc/self/ns/pid").ok()?;
    name.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// Mark in the environment of a process.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MarkLookup {
    With(String),
    No,
    /// The environment is empty.
    Empty,
    /// The process is just executing another program: its environment is empty, and its command line, too.
    Executing,
}

impl MarkLookup {
    pub(super) fn read(pid: i32) -> Self {
        // A process whose environment cannot be read is not ours.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return Self::No };
        if environment.is_empty() && Stat::read(pid).is_some_and(|stat| stat.runs && !stat.kernel) {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            return if command.is_empty() { Self::Executing } else { Self::Empty };
        }
        let value = environment.split(|byte| *byte == 0).find_map(|variable| {
            variable.strip_prefix(LINK.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
        });
        let mark = value.and_then(|value| String::from_utf8(value.to_vec()).ok());
        mark.map_or(Self::No, Self::With)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_names_its_holder() {
        let marks = Marks::new();
        let holder = MarkHolder::parse(&marks.mark(7)).unwrap();
        assert_eq!(holder.process.pid, getpid().as_raw_pid());
        assert!(holder.process.lives() && !holder.is_dead_here());
        assert_ne!(marks.prefix(), Marks::new().prefix());
    }

    #[test]
    fn holder_of_another_namespace_is_not_dead() {
        let space = pid_namespace().unwrap();
        let pid = getpid().as_raw_pid();
        let dead = |mark: String| MarkHolder::parse(&mark).unwrap().is_dead_here();
        assert!(dead(format!("{space}.{pid}.1.ab.0")), "another one had our pid");
        assert!(!dead(format!("{}.{pid}.1.ab.0", space + 1)), "a foreign namespace");
    }

    #[test]
    fn invalid_mark_has_no_holder() {
        for text in ["", "1", "1.2.3", "1.2.3.ab", "a.2.3.ab.1", "1.-2.3.ab.1", "1.0.3.ab.1"] {
            assert_eq!(MarkHolder::parse(text), None, "{text}");
        }
    }
}

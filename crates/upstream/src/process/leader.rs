//! The process that was started: it leads a group of its own.

use std::{thread, time::Duration};

use rustix::{
    io::{Errno, retry_on_intr},
    process::{
        Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, kill_process_group, waitid,
    },
};

use super::{
    Exited,
    proc::{self, Seen},
};

/// How often is looked whether it has died of KILL, a few milliseconds apart.
const LOOKS: u32 = 500;

/// Waits for the end of a leader that has its KILL, by way of whoever can reap it. Blocks.
pub(super) fn reaped(mut reap: impl FnMut() -> Option<Exited>) -> Exited {
    for _ in 0..LOOKS {
        if let Some(exited) = reap() {
            return exited;
        }
        thread::sleep(Duration::from_millis(4));
    }
    // The kernel does not let it die. Waiting longer would hold up others.
    Exited::Unknown
}

/// A child of this very process. Until it is reaped its pid, and so its group, stays its own.
#[derive(Debug)]
pub(super) struct Leader {
    pid: Pid,
    reaped: Option<Exited>,
}

impl Leader {
    pub(super) fn new(pid: Pid) -> Self {
        Self { pid, reaped: None }
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    pub(super) fn is_reaped(&self) -> bool {
        self.reaped.is_some()
    }

    /// How it ended, if it has. It stays a zombie.
    pub(super) fn peek(&mut self) -> Option<Exited> {
        self.ask(WaitIdOptions::NOWAIT)
    }

    /// To the whole group. Nothing if there can be another one of that name by now.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.has_its_name() {
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Kills the group while the leader keeps its name. Returns what descended from it before.
    pub(super) fn strike(&mut self) -> Vec<Seen> {
        if !self.has_its_name() {
            return Vec::new();
        }
        let tree = proc::below(self.pid.as_raw_pid());
        self.signal(Signal::KILL);
        // It may have joined another group.
        let _ = kill_process(self.pid, Signal::KILL);
        tree
    }

    /// How it ended, if it has. From here on its name can be anybody's.
    pub(super) fn reap(&mut self) -> Option<Exited> {
        self.ask(WaitIdOptions::empty())
    }

    /// Whether its pid is still its own. Somebody else in this process may have reaped it, which nobody
    /// tells us, so it is asked each time.
    fn has_its_name(&mut self) -> bool {
        self.peek();
        self.reaped.is_none()
    }

    fn ask(&mut self, how: WaitIdOptions) -> Option<Exited> {
        if self.reaped.is_some() {
            return self.reaped;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | how;
        let status = retry_on_intr(|| waitid(WaitId::Pid(self.pid), options));
        let exited = self.read(status)?;
        if !how.contains(WaitIdOptions::NOWAIT) {
            self.reaped = Some(exited);
        }
        Some(exited)
    }

    fn read(&mut self, status: Result<Option<WaitIdStatus>, Errno>) -> Option<Exited> {
        match status {
            Ok(status) => status.as_ref().map(Exited::from_status),
            // Somebody else in this process waits for all children, or has SIGCHLD ignored.
            Err(_) => {
                self.reaped = Some(Exited::Unknown);
                self.reaped
            }
        }
    }
}

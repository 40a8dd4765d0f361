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
    pub(super) fn signal(&self, signal: Signal) {
        if self.reaped.is_none() {
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Kills the group while the leader keeps its name, then reaps the leader. Returns how it ended
    /// and what descended from it before.
    pub(super) fn kill(&mut self) -> (Exited, Vec<Seen>) {
        if let Some(exited) = self.reaped {
            return (exited, Vec::new());
        }
        let tree = proc::below(self.pid.as_raw_pid());
        self.signal(Signal::KILL);
        // It may have joined another group.
        let _ = kill_process(self.pid, Signal::KILL);
        for _ in 0..LOOKS {
            if let Some(exited) = self.ask(WaitIdOptions::empty()) {
                return (exited, tree);
            }
            thread::sleep(Duration::from_millis(4));
        }
        // The kernel does not let it die. It has its KILL, and waiting longer would hold up others.
        (Exited::Unknown, tree)
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

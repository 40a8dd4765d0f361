//! Started process, which leads its own group.

use std::{thread, time::Duration};

use rustix::{
    io::{Errno, retry_on_intr},
    process::{
        Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, kill_process_group, waitid,
    },
};

use super::{
    ExitStatus,
    procfs::{self, ProcessRef},
};

/// Number of checks, 4 ms apart, whether the leader has died of KILL.
const MAX_CHECKS: u32 = 500;

/// Waits for the end of a leader that was sent KILL, by calling `reap` repeatedly. Blocks.
pub(super) fn reaped(mut reap: impl FnMut() -> Option<ExitStatus>) -> ExitStatus {
    for _ in 0..MAX_CHECKS {
        if let Some(exited) = reap() {
            return exited;
        }
        thread::sleep(Duration::from_millis(4));
    }
    // The kernel does not let it die. Waiting longer would delay other children.
    ExitStatus::Unknown
}

/// Direct child of this process. Until it is reaped, its pid and so the id of its group are not reused.
#[derive(Debug)]
pub(super) struct Leader {
    pid: Pid,
    reaped: Option<ExitStatus>,
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

    /// Returns how the leader ended, if it has. It stays a zombie.
    pub(super) fn peek(&mut self) -> Option<ExitStatus> {
        self.ask(WaitIdOptions::NOWAIT)
    }

    /// Sends a signal to the whole group. Does nothing if another group can have its id by now.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.owns_pid() {
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Kills the group while the leader keeps its id reserved. Returns the descendants that the leader had
    /// before.
    pub(super) fn kill_group(&mut self) -> Vec<ProcessRef> {
        if !self.owns_pid() {
            return Vec::new();
        }
        let tree = procfs::below(self.pid.as_raw_pid());
        self.signal(Signal::KILL);
        // The leader may have joined another group.
        let _ = kill_process(self.pid, Signal::KILL);
        tree
    }

    /// Reaps the leader if it has ended, and returns how it ended. From here on its pid can be reused.
    pub(super) fn reap(&mut self) -> Option<ExitStatus> {
        self.ask(WaitIdOptions::empty())
    }

    /// Returns whether the pid still belongs to the leader. Other code in this process can reap the leader
    /// without any notice, so the kernel is asked each time.
    fn owns_pid(&mut self) -> bool {
        self.peek();
        self.reaped.is_none()
    }

    fn ask(&mut self, how: WaitIdOptions) -> Option<ExitStatus> {
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

    fn read(&mut self, status: Result<Option<WaitIdStatus>, Errno>) -> Option<ExitStatus> {
        match status {
            Ok(status) => status.as_ref().map(ExitStatus::from_status),
            // Other code in this process waits for all children, or SIGCHLD is ignored.
            Err(_) => {
                self.reaped = Some(ExitStatus::Unknown);
                self.reaped
            }
        }
    }
}

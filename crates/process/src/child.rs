//! Running child process.

use std::{mem, sync::Arc};

use super::{EndReport, ExitStatus, Grace, Pipes, ProcessInfo, lifecycle::Lifecycle};

/// Child process and everything it starts. Dropping it ends the child: in the background on the runtime of its
/// [`Processes`](super::Processes), or, if that runtime is gone, by KILL before `drop` returns.
#[derive(Debug)]
pub struct Child {
    lifecycle: Arc<Lifecycle>,
    pipes: Option<Pipes>,
}

impl Child {
    pub(super) fn new(lifecycle: Arc<Lifecycle>, pipes: Pipes) -> Self {
        Self { lifecycle, pipes: Some(pipes) }
    }

    /// Returns the pid, which is also the id of the group. It means nothing once the child has ended.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.lifecycle.pid().unsigned_abs()
    }

    /// Returns the pipes to the first caller. Until they are taken, nothing reads the child's output.
    pub fn take_pipes(&mut self) -> Option<Pipes> {
        self.pipes.take()
    }

    /// Returns how the child ended, if it has.
    #[must_use]
    pub fn exited(&self) -> Option<ExitStatus> {
        self.lifecycle.check()
    }

    /// Waits until the child has exited. Its leftovers may live a moment longer; [`Child::end`] waits for them
    /// too.
    ///
    /// Watching a child takes a descriptor for as long as this waits. An exit without a waiter is noticed as
    /// well, within half a second.
    pub async fn wait(&self) -> ExitStatus {
        self.lifecycle.wait().await
    }

    /// Waits like [`Child::wait`], but takes no descriptor. For callers that can see the exit in other ways and
    /// have time.
    pub async fn exit_recorded(&self) -> ExitStatus {
        self.lifecycle.exit_recorded().await
    }

    /// Ends the child and everything it started.
    ///
    /// The caller has closed the child's stdin, which tells an MCP server to quit. If the child has not exited
    /// after `grace.quit`, its group gets TERM, and after `grace.term` KILL. Then the leftovers outside the
    /// group are killed, without grace.
    ///
    /// Several calls from any task are allowed; all get the same result. A shorter grace counts from the start
    /// of the current step. Once called, the end continues even if its future is dropped.
    pub async fn end(&self, grace: Grace) -> EndReport {
        self.lifecycle.end(grace).await
    }

    /// Returns the memory, in bytes, of the child, its descendants and all processes with its mark. A page that
    /// several processes share counts for each of them in equal parts (PSS). Reads `/proc` and so blocks for a moment.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.lifecycle.memory()
    }

    /// Returns the child, its descendants and all processes with its mark, sorted by pid. Reads `/proc` and so blocks
    /// for a moment.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.lifecycle.processes()
    }

    /// Returns a meter of the memory, which can be read on another thread.
    #[must_use]
    pub fn memory_meter(&self) -> MemoryMeter {
        MemoryMeter(self.lifecycle.clone())
    }
}

/// Meter of the memory of a child, see [`Child::memory`].
#[derive(Clone, Debug)]
pub struct MemoryMeter(Arc<Lifecycle>);

impl MemoryMeter {
    /// Same as [`Child::memory`]: it blocks for a moment.
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        self.0.memory()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.lifecycle.forked() {
            // Closing the pipes in a forked copy would deregister them from the reactor that both copies share.
            mem::forget(self.pipes.take());
            return;
        }
        // Closes stdin first: that may be enough to end the child.
        self.pipes = None;
        if self.lifecycle.ended().is_none() {
            self.lifecycle.begin_end(Grace::default());
        }
    }
}

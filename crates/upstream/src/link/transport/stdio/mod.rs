//! Link over the pipes of a child process.

mod outbox;
mod pump;

use std::{
    fmt,
    sync::{Arc, OnceLock},
    task::Waker,
    time::Duration,
};

use bytes::Bytes;
use stayput_process::{Child, MemoryMeter, ProcessInfo, StderrTail};
use tokio::sync::Notify;

use crate::{
    Loss, LossReason,
    link::{Core, cancellation, expiry},
};
use outbox::{Outbox, QueuedBytes};
use stayput_sync::Mutex;

pub(crate) use pump::Pump;

/// Sending half of a child's pipes, and the waker of the task that has the other half.
///
/// The sender of a message writes as much of it as the pipe takes; only the rest waits for the task. An idle
/// link has one sleeping task and no buffer.
pub(crate) struct Stdio {
    outbox: Mutex<Outbox>,
    load: QueuedBytes,
    /// Waker of the task that reads.
    task: Mutex<Option<Waker>>,
    /// Notified when the outbox has space again.
    room: Notify,
    /// Reason of the shutdown, set by the first caller. Every path that notices the end reports this reason.
    begin_close: OnceLock<LossReason>,
    tail: StderrTail,
    /// Last line of stderr, if it has no line break yet and the server has a receiver for lines.
    open_stderr_line: Mutex<Vec<u8>>,
    child: Arc<Child>,
}

impl Stdio {
    /// Waits while too many bytes wait for the child, unless the link ends. Returns false if that took longer
    /// than `limit`.
    pub(crate) async fn ready(&self, core: &Core, limit: Duration) -> bool {
        if !self.load.is_full() {
            return true;
        }
        let deadline = {
            // The caller may run on another runtime, or on none.
            let _entered = core.runtime().enter();
            tokio::time::sleep_until(expiry(limit))
        };
        tokio::pin!(deadline);
        loop {
            let notified = self.room.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if !self.load.is_full() || core.over.is_raised() {
                return true;
            }
            tokio::select! {
                () = notified => {}
                () = core.over.wait() => return true,
                () = deadline.as_mut() => return false,
            }
        }
    }

    pub(crate) fn send(&self, number: Option<u64>, text: Bytes) {
        let waits = self.outbox.lock().send(number, text);
        if waits {
            self.wake();
        }
    }

    /// Cancels a call. If nothing of it was written, it is not sent at all. Returns whether that was so.
    pub(crate) fn cancel(&self, number: u64, reason: &str) -> bool {
        let withdrawn = self.outbox.lock().withdraw(number);
        if withdrawn {
            // The task would not notify: it may have nothing left to write.
            self.room.notify_waiters();
        } else {
            self.send(None, cancellation(number, reason));
        }
        withdrawn
    }

    pub(crate) fn rearm(&self) {
        self.wake();
    }

    /// Closes the child's input; the task ends the child.
    pub(crate) fn begin_close(&self, core: &Core, reason: LossReason) {
        let reason = *self.begin_close.get_or_init(|| reason);
        self.close(core, Loss::new(reason, ""));
        self.wake();
    }

    fn close(&self, core: &Core, loss: Loss) {
        let unsent = self.outbox.lock().close();
        core.close(loss, &|number| unsent.contains(&number));
    }

    fn wake(&self) {
        let waker = self.task.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_shut(&self) -> bool {
        self.begin_close.get().is_some()
    }

    pub(crate) fn memory_meter(&self) -> MemoryMeter {
        self.child.memory_meter()
    }

    pub(crate) fn memory(&self) -> Option<u64> {
        self.child.memory()
    }

    pub(crate) fn processes(&self) -> Vec<ProcessInfo> {
        self.child.processes()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Last lines that the child wrote to its standard error.
    pub(crate) fn tail(&self) -> &StderrTail {
        &self.tail
    }
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stdio")
    }
}

//! A child process that runs.

use std::{mem, sync::Arc};

use super::{Ended, Exited, Grace, Pipes, life::Life};

/// A child process and all that it starts. Dropped, it is ended: in the background on the runtime of
/// its [`Processes`](super::Processes), or if that is gone, killed before `drop` returns.
#[derive(Debug)]
pub struct Child {
    life: Arc<Life>,
    pipes: Option<Pipes>,
}

impl Child {
    pub(super) fn new(life: Arc<Life>, pipes: Pipes) -> Self {
        Self { life, pipes: Some(pipes) }
    }

    /// Its pid, which is its group's too. It means nothing once the child has ended.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.life.pid().unsigned_abs()
    }

    /// The pipes, for the first who asks. While they are not taken nobody reads what the child says.
    pub fn take_pipes(&mut self) -> Option<Pipes> {
        self.pipes.take()
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn exited(&self) -> Option<Exited> {
        self.life.look()
    }

    /// Waits until it has exited. What it left behind may live for a moment longer; [`Child::end`] waits
    /// for that too.
    ///
    /// Watching a child takes a descriptor for as long as this waits. An exit that nobody waits for is
    /// noticed as well, within half a second.
    pub async fn wait(&self) -> Exited {
        self.life.wait().await
    }

    /// As [`Child::wait`], for who has other ways to see that it is gone, and time: it takes no descriptor.
    pub(crate) async fn told(&self) -> Exited {
        self.life.told().await
    }

    /// Ends it and all that it started.
    ///
    /// The caller has closed its stdin, which is how a server of MCP is told to quit. Whoever has not
    /// gone after `grace.quit` gets TERM, with its group, and after `grace.term` KILL. Then what is
    /// left outside of the group is killed, without grace.
    ///
    /// This may be called several times and from anywhere, all get the same answer, and a shorter
    /// grace counts from when the step began. Once called it goes on, whether its future lives or not.
    pub async fn end(&self, grace: Grace) -> Ended {
        self.life.end(grace).await
    }

    /// The memory in RAM, in bytes, of the child, of all that descends from it and of all that carries
    /// its mark. Pages that they share are counted for each. Reads `/proc` and so blocks for a moment.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.life.memory()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.life.forked() {
            // Closing them here would unhook them from the reactor that both copies share.
            mem::forget(self.pipes.take());
            return;
        }
        // The end of its input comes first: it may be all it takes.
        self.pipes = None;
        if self.life.ended().is_none() {
            self.life.begin(Grace::default());
        }
    }
}

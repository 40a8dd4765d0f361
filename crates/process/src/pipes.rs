//! Three pipes between a child and this process.

use std::{io, os::fd::OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::{
    net::unix::pipe::{Receiver, Sender},
    runtime::{self, Handle},
};

/// Our ends of the pipes. They are non-blocking, and no other child inherits them: a second holder of `stdin`
/// would keep the child from ever seeing its end.
#[derive(Debug)]
pub struct Pipes {
    /// Input of the child. Dropping it tells the child to quit.
    pub stdin: Sender,
    /// Output of the child: its answers.
    pub stdout: Receiver,
    /// Messages of the child for people; see [`StderrTail`](super::StderrTail).
    pub stderr: Receiver,
    /// Runtime that watches the pipes.
    runtime: runtime::Id,
}

impl Pipes {
    /// Moves the pipes to the current runtime.
    ///
    /// # Errors
    /// If the runtime cannot watch them.
    pub fn move_here(self) -> io::Result<Self> {
        let runtime = Handle::current().id();
        if self.runtime == runtime {
            return Ok(self);
        }
        Ok(Self {
            runtime,
            stdin: Sender::from_owned_fd(self.stdin.into_nonblocking_fd()?)?,
            stdout: Receiver::from_owned_fd(self.stdout.into_nonblocking_fd()?)?,
            stderr: Receiver::from_owned_fd(self.stderr.into_nonblocking_fd()?)?,
        })
    }
}

/// The child's ends of the pipes, blocking as programs expect: stdin, stdout, stderr.
#[derive(Debug)]
pub(super) struct ChildPipes(pub(super) [OwnedFd; 3]);

/// Creates all three pipes. Has to be called on a runtime, which then watches our ends.
pub(super) fn pipes() -> io::Result<(Pipes, ChildPipes)> {
    let (their_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let ours = Pipes {
        runtime: Handle::current().id(),
        stdin: Sender::from_owned_fd(stdin)?,
        stdout: Receiver::from_owned_fd(stdout)?,
        stderr: Receiver::from_owned_fd(stderr)?,
    };
    Ok((ours, ChildPipes([their_stdin, their_stdout, their_stderr])))
}

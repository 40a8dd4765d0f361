//! The three pipes between a child and us.

use std::{io, os::fd::OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::{Receiver, Sender};

use crate::lane;

/// Our ends. They block nobody, and no other child inherits them: a second holder of `stdin` would
/// keep the child from ever seeing its end.
#[derive(Debug)]
pub struct Pipes {
    /// What is written here the child reads; dropping it tells the child to quit.
    pub stdin: Sender,
    /// What the child answers.
    pub stdout: Receiver,
    /// What the child tells people; see [`StderrTail`](super::StderrTail).
    pub stderr: Receiver,
    /// The lane whose runtime watches them.
    lane: usize,
}

impl Pipes {
    /// The same, watched by the runtime of the lane that runs here.
    pub(crate) fn moved_here(self) -> io::Result<Self> {
        let lane = lane::number();
        if self.lane == lane {
            return Ok(self);
        }
        Ok(Self {
            lane,
            stdin: Sender::from_owned_fd(self.stdin.into_nonblocking_fd()?)?,
            stdout: Receiver::from_owned_fd(self.stdout.into_nonblocking_fd()?)?,
            stderr: Receiver::from_owned_fd(self.stderr.into_nonblocking_fd()?)?,
        })
    }
}

/// The child's ends, which block as programs expect: stdin, stdout, stderr.
#[derive(Debug)]
pub(super) struct Ends(pub(super) [OwnedFd; 3]);

/// Makes all three. Has to be called on a runtime, which will tell when there is something to read.
pub(super) fn pipes() -> io::Result<(Pipes, Ends)> {
    let (their_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let ours = Pipes {
        lane: lane::number(),
        stdin: Sender::from_owned_fd(stdin)?,
        stdout: Receiver::from_owned_fd(stdout)?,
        stderr: Receiver::from_owned_fd(stderr)?,
    };
    Ok((ours, Ends([their_stdin, their_stdout, their_stderr])))
}

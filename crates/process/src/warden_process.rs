//! Process of a warden, as its parent sees it.

use std::{
    ffi::OsString,
    fmt, io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use super::mark::{LINK, Marks, WARDEN};

/// Number of checks, 10 ms apart, whether a warden has ended after its socket was closed: five seconds. The
/// warden needs half a second for children that ignore TERM.
const MAX_REAP_CHECKS: u32 = 500;

/// Command that runs the warden: a program whose main function calls [`warden_main`](super::warden_main) when
/// it gets these arguments. The warden inherits our environment.
#[derive(Clone)]
pub struct WardenCommand {
    pub(super) program: OsString,
    args: Vec<OsString>,
}

impl WardenCommand {
    /// Builds the command, usually from our own executable and a hidden subcommand.
    pub fn new<A: Into<OsString>>(
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        Self { program: program.into(), args: args.into_iter().map(Into::into).collect() }
    }
}

impl fmt::Debug for WardenCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WardenCommand").field("program", &self.program).finish_non_exhaustive()
    }
}

/// Process of a warden. It is killed if it is dropped before it was reaped.
#[derive(Debug)]
pub(super) struct WardenProcess {
    process: Child,
}

impl WardenProcess {
    pub(super) fn start(command: &WardenCommand, marks: &Marks) -> io::Result<(UnixStream, Self)> {
        let (ours, theirs) = UnixStream::pair()?;
        let process = Command::new(&command.program)
            .args(&command.args)
            .env(WARDEN, marks.prefix())
            // Stayput may be a marked child itself; the warden must not inherit that mark.
            .env_remove(LINK)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        Ok((ours, Self { process }))
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.process.id()).unwrap_or(0)
    }

    /// Waits for the warden's exit, which comes soon after the end of its socket, and returns how it ended. A
    /// warden that does not exit is killed. Blocks.
    pub(super) fn reap(&mut self) -> String {
        for _ in 0..MAX_REAP_CHECKS {
            match self.process.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(10)),
                Ok(Some(status)) => return format!("it ended with {status}"),
                Err(error) => return format!("it cannot be waited for ({error})"),
            }
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        "it did not end when it was told to".to_owned()
    }
}

impl Drop for WardenProcess {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

//! Children that a warden starts.

use std::{
    ffi::OsString,
    fmt, io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use async_trait::async_trait;
use rustix::{io::Errno, process::Signal};
use tokio::{runtime::Handle, time::timeout};

use super::{
    Exited, Program, StartError,
    error::{Refused, Step},
    frame::{FRAME_LIMIT, Request},
    life::{ChildControl, Life, Reaped},
    line::Line,
    mark::{LINK, Marks, WARDEN},
    pipes::Ends,
    registry::Registry,
    rest::{Claim, Cleanup, Ground},
};

/// Number of checks, 10 ms apart, whether a warden has ended after its socket was closed: five seconds. The
/// warden needs half a second for children that ignore TERM.
const LOOKS: u32 = 500;

/// Time that a warden may take to end a child; it ends children one after the other. A warden that takes longer
/// is stopped or starved, and its processes are then killed without it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Command that runs the warden: a program whose main function calls [`warden_main`](super::warden_main) when
/// it gets these arguments. The warden inherits our environment.
#[derive(Clone)]
pub struct WardenCommand {
    program: OsString,
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

/// Starts children through a warden, and starts the warden if none runs.
#[derive(Debug)]
pub(super) struct Wardens {
    command: WardenCommand,
    marks: Marks,
    broom: Arc<Cleanup>,
    /// Connection to the current warden. The holder of the lock starts the next warden; other callers wait for
    /// it.
    line: tokio::sync::Mutex<Option<Arc<Line>>>,
}

impl Wardens {
    pub(super) fn new(command: WardenCommand, marks: Marks) -> Self {
        Self { command, marks, broom: Arc::default(), line: tokio::sync::Mutex::new(None) }
    }

    pub(super) async fn start(
        &self,
        number: u64,
        program: &Program,
        ends: Ends,
        registry: &Arc<Registry>,
    ) -> Result<Arc<Life>, StartError> {
        let mark = self.marks.of(number);
        let request = Request::Start { number, mark: mark.clone(), program: program.clone() };
        let frame = request.encode();
        if frame.len() > FRAME_LIMIT {
            return Err(StartError::new(program, Refused::new(Step::Program, Errno::TOOBIG)));
        }
        let line = self.line(registry).await?;
        let grip = WardenGrip {
            number,
            mark: mark.clone(),
            line: line.clone(),
            broom: self.broom.clone(),
        };
        let life = Arc::new(Life::new((number, mark), Arc::new(grip), registry.clone()));
        match line.start(life.clone(), frame, ends).await {
            Ok(Ok(())) => Ok(life),
            Ok(Err(refused)) => Err(StartError::new(program, refused)),
            Err(_) => Err(StartError::WardenGone { reason: line.gone().await }),
        }
    }

    /// Ends the warden and waits until it is gone.
    pub(super) async fn close(&self) {
        let line = self.line.lock().await.take();
        if let Some(line) = line {
            line.hang_up();
            line.gone().await;
        }
    }

    async fn line(&self, registry: &Registry) -> Result<Arc<Line>, StartError> {
        let mut line = self.line.lock().await;
        if let Some(line) = line.as_ref().filter(|line| line.is_open()) {
            return Ok(line.clone());
        }
        let (command, marks) = (self.command.clone(), self.marks.clone());
        let started = tokio::task::spawn_blocking(move || WardenProcess::start(&command, &marks));
        let started = started.await.map_err(|_| StartError::Closed)?;
        let new =
            started.and_then(|(socket, warden)| Line::new(socket, warden, registry.runtime()));
        let new = new.map_err(|error| {
            let program = self.command.program.to_string_lossy();
            let reason = format!("`{program}` could not be started as one ({error})");
            StartError::WardenGone { reason }
        })?;
        *line = Some(new.clone());
        Ok(new)
    }
}

/// Process of a warden. It is killed if it is dropped before it was reaped.
#[derive(Debug)]
pub(super) struct WardenProcess {
    process: Child,
}

impl WardenProcess {
    fn start(command: &WardenCommand, marks: &Marks) -> io::Result<(UnixStream, Self)> {
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
        for _ in 0..LOOKS {
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

/// Control of a child of a warden.
#[derive(Debug)]
struct WardenGrip {
    number: u64,
    mark: String,
    line: Arc<Line>,
    broom: Arc<Cleanup>,
}

#[async_trait]
impl ChildControl for WardenGrip {
    fn signal(&self, signal: Signal) {
        self.line.signal(self.number, signal.as_raw());
    }

    async fn reap(self: Arc<Self>, claim: Claim) -> Reaped {
        let reaped = timeout(ANSWER_TIMEOUT, self.line.reap(self.number)).await.map_err(|_| ());
        let reaped = reaped.and_then(|reaped| reaped.map_err(|_| ()));
        let leftovers = reaped.unwrap_or(0);
        // The warden saw the tree at the last moment; `claim` holds the tree from before.
        if reaped.is_ok() && !claim.lives() {
            // The exit status was reported earlier.
            return Reaped { exited: Exited::Unknown, leftovers };
        }
        let (here, again) = (self.clone(), claim.clone());
        let more = tokio::task::spawn_blocking(move || here.reap_now(claim)).await;
        // A runtime that shuts down takes no more work.
        let more = more.unwrap_or_else(|_| self.reap_now(again));
        Reaped { leftovers: leftovers + more.leftovers, ..more }
    }

    /// Searches for leftovers from this process, because the warden may be gone. Does not signal the group: its
    /// id may belong to another group by now.
    fn reap_now(&self, claim: Claim) -> Reaped {
        let leftovers = self.broom.sweep(self.mark.clone(), claim);
        Reaped { exited: Exited::Unknown, leftovers }
    }

    /// Returns `None`: the warden reports the exit.
    fn exited(&self) -> Option<Exited> {
        None
    }

    async fn exit(&self, _: &Handle) -> Exited {
        std::future::pending().await
    }

    fn ground(&self) -> Ground {
        Ground::Orphans { of: self.line.pid(), leaders: self.line.leaders().into_iter().collect() }
    }
}

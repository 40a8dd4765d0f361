//! Children that a warden starts for us.

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
    life::{Grip, Life, Reaped},
    line::Line,
    mark::{LINK, Marks, WARDEN},
    pipes::Ends,
    registry::Registry,
    rest::{Broom, Claim, Ground},
};

/// How often is looked whether a warden that was told to end has ended, a moment apart: five seconds,
/// of which it needs half a one for children that do not want to go.
const LOOKS: u32 = 500;

/// How long a warden may take to end a child; it does so one after the other. One that takes longer is
/// stopped or starved, and what it should have killed is then killed without it.
const ANSWER: Duration = Duration::from_secs(30);

/// What runs the warden: a program whose main function calls [`warden_main`](super::warden_main) when
/// it is given these arguments. It inherits our environment.
#[derive(Clone)]
pub struct WardenCommand {
    program: OsString,
    args: Vec<OsString>,
}

impl WardenCommand {
    /// Usually our own executable and a hidden subcommand.
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

/// Starts children through a warden, and a warden when there is none.
#[derive(Debug)]
pub(super) struct Wardens {
    command: WardenCommand,
    marks: Marks,
    broom: Arc<Broom>,
    /// Whoever has the lock starts the next one; the others wait for it.
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

/// A warden's process. Dropped before it was reaped, it is killed.
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
            // We may be somebody's child ourselves; the warden is not.
            .env_remove(LINK)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        Ok((ours, Self { process }))
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.process.id()).unwrap_or(0)
    }

    /// Waits until it is gone, which it is soon after the end of its socket, and tells how it ended.
    /// Blocks.
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

/// A child of a warden.
#[derive(Debug)]
struct WardenGrip {
    number: u64,
    mark: String,
    line: Arc<Line>,
    broom: Arc<Broom>,
}

#[async_trait]
impl Grip for WardenGrip {
    fn signal(&self, signal: Signal) {
        self.line.signal(self.number, signal.as_raw());
    }

    async fn reap(self: Arc<Self>, claim: Claim) -> Reaped {
        let reaped = timeout(ANSWER, self.line.reap(self.number)).await.map_err(|_| ());
        let reaped = reaped.and_then(|reaped| reaped.map_err(|_| ()));
        let leftovers = reaped.unwrap_or(0);
        // The warden saw the tree as it was at the last moment; the claim knows it from before.
        if reaped.is_ok() && !claim.lives() {
            // How it exited was told before.
            return Reaped { exited: Exited::Unknown, leftovers };
        }
        let (here, again) = (self.clone(), claim.clone());
        let more = tokio::task::spawn_blocking(move || here.reap_now(claim)).await;
        // A runtime that is going away takes no more work.
        let more = more.unwrap_or_else(|_| self.reap_now(again));
        Reaped { leftovers: leftovers + more.leftovers, ..more }
    }

    /// The warden may be gone, so what is left is looked for from here. The group is not touched: its
    /// number may be somebody else's by now.
    fn reap_now(&self, claim: Claim) -> Reaped {
        let leftovers = self.broom.sweep(self.mark.clone(), claim);
        Reaped { exited: Exited::Unknown, leftovers }
    }

    /// The warden tells.
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

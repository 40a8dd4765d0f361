//! Connection to the process that holds the sessions. If there is none, a daemon is started.

use std::{
    fs, io, os::unix::fs::OpenOptionsExt as _, path::PathBuf, process::Stdio, time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::watch,
    time::Instant,
};

use crate::{
    app::{daemon, instance_lock},
    listen::{
        lines::Lines,
        proxy_handshake::{FORM, HandshakeReply, HandshakeRequest, line},
        unix_socket,
    },
};

/// Timeout of the whole search.
const REACH_TIMEOUT: Duration = Duration::from_secs(60);

/// Time to wait for a holder that is likely to restart, before a daemon is started.
const RESTART: Duration = Duration::from_secs(10);

/// Timeout of an answer of the holder.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Interval of the search for a holder while the client has no request for one.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum size of the daemon's log.
const LOG_LIMIT: u64 = 1 << 20;

/// Reason why the holder cannot be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReachError {
    #[error("{0}")]
    Refused(String),
    #[error("the folder {} cannot be used: {error}", path.display())]
    Data { path: PathBuf, error: io::Error },
    #[error("the process that holds the sessions cannot be started: {0}")]
    Start(String),
    #[error("the process that holds the sessions in {} does not answer; `stayput stop` ends it", .0.display())]
    Silent(PathBuf),
}

/// Whether a retry cannot succeed.
fn is_final(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput)
}

/// Connection to the process that holds the sessions.
pub(super) struct Holder {
    pub(super) said: Lines<OwnedReadHalf>,
    pub(super) to: OwnedWriteHalf,
    pub(super) welcome: HandshakeReply,
}

/// Data folder of the sessions, and the handshake to send.
pub(super) struct HolderAddress {
    pub(super) data: PathBuf,
    pub(super) hello: HandshakeRequest,
    /// Whether the previous holder is likely to restart.
    pub(super) lasting: bool,
    /// Whether the client has a request for a holder. Until then none is started, so that `stayput stop` lasts, and
    /// `stayput serve` can take its place.
    pub(super) wanted: watch::Sender<bool>,
}

impl HolderAddress {
    fn failed(&self, error: io::Error) -> ReachError {
        ReachError::Data { path: self.data.clone(), error }
    }

    /// Connects to the holder, or starts one.
    pub(super) async fn reach(&self) -> Result<Holder, ReachError> {
        let mut begun = Instant::now();
        while begun.elapsed() < REACH_TIMEOUT {
            if let Some(holder) = self.found().await? {
                return Ok(holder);
            }
            if !*self.wanted.borrow() {
                let mut wanted = self.wanted.subscribe();
                let waiting = wanted.wait_for(|wanted| *wanted);
                let _ = tokio::time::timeout(IDLE_POLL_INTERVAL, waiting).await;
                begun = Instant::now();
                continue;
            }
            if self.lasting && begun.elapsed() < RESTART {
                tokio::time::sleep(5 * POLL_INTERVAL).await;
                continue;
            }
            if let Some(holder) = self.started(begun + REACH_TIMEOUT).await? {
                return Ok(holder);
            }
        }
        Err(ReachError::Silent(self.data.clone()))
    }

    /// Connects to the holder, if there is one.
    async fn found(&self) -> Result<Option<Holder>, ReachError> {
        let stream = match unix_socket::connect(&self.data).await {
            Ok(stream) => stream,
            // No retry can change this.
            Err(error) if is_final(&error) => return Err(self.failed(error)),
            // There is no holder, or it is about to exit.
            Err(_) => {
                tokio::time::sleep(POLL_INTERVAL).await;
                return Ok(None);
            }
        };
        let (read, mut to) = stream.into_split();
        let mut said = Lines::new(read);
        let hello = line(&self.hello).map_err(|error| self.failed(error))?;
        if to.write_all(&hello).await.is_err() {
            return Ok(None);
        }
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, said.next()).await;
        let answer = answer.map_err(|_| ReachError::Silent(self.data.clone()))?;
        // The holder was about to exit.
        let Some(Ok(answer)) = answer else {
            tokio::time::sleep(POLL_INTERVAL).await;
            return Ok(None);
        };
        let welcome = serde_json::from_slice::<HandshakeReply>(&answer).ok();
        match welcome.filter(|welcome| welcome.stayput == FORM) {
            Some(HandshakeReply { refused: Some(sentence), .. }) => Err(ReachError::Refused(sentence)),
            Some(welcome) => Ok(Some(Holder { said, to, welcome })),
            None => Err(ReachError::Refused(
                "the sessions are held by another version of stayput; stop it, or close its clients".into(),
            )),
        }
    }

    /// Starts the holder. The first process that takes the lock starts it, and all others wait.
    async fn started(&self, until: Instant) -> Result<Option<Holder>, ReachError> {
        let failed = |error| self.failed(error);
        instance_lock::prepare(&self.data).map_err(failed)?;
        let lock =
            instance_lock::lockable(&self.data.join(instance_lock::STARTING)).map_err(failed)?;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(fs::TryLockError::WouldBlock) if Instant::now() < until => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Err(fs::TryLockError::WouldBlock) => return Ok(None),
                Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        // Another process may have started it before this one got the lock.
        if let Some(holder) = self.found().await? {
            return Ok(Some(holder));
        }
        let report = self.start().await.map_err(|error| ReachError::Start(error.to_string()))?;
        match (self.found().await?, &*report) {
            (Some(holder), _) => Ok(Some(holder)),
            (None, daemon::READY) => Ok(None),
            (None, "") => {
                let log = self.data.join("daemon.log");
                Err(ReachError::Start(format!("it ended; {} may say why", log.display())))
            }
            (None, report) => Err(ReachError::Start(report.to_owned())),
        }
    }

    /// Starts a detached daemon. Returns the line that it writes.
    async fn start(&self) -> io::Result<String> {
        let mut options = fs::OpenOptions::new();
        let log =
            options.append(true).create(true).mode(0o600).open(self.data.join("daemon.log"))?;
        if log.metadata()?.len() > LOG_LIMIT {
            log.set_len(0)?;
        }
        let mut child = tokio::process::Command::new(std::env::current_exe()?)
            .arg("daemon")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // An error here shows in the line of the daemon.
            let _ = stdin.write_all(&line(&self.hello.definition)?).await;
        }
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            let _ = tokio::time::timeout(ANSWER_TIMEOUT, stdout.read_line(&mut said)).await;
        }
        child.wait().await?;
        Ok(said.trim().to_owned())
    }
}

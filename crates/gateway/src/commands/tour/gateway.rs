//! The gateway of the story: `stayput serve` as a child process.

use std::{
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    runtime::Handle,
};

use super::Seen;

/// How long it may take to come up, or to let go of everything.
const PATIENCE: Duration = Duration::from_secs(30);

/// A gateway that runs. Dropped, it is killed, and its warden ends what it started.
pub(super) struct Gateway {
    child: Child,
    pub(super) pid: u32,
    pub(super) address: SocketAddr,
    last_words: Arc<Mutex<String>>,
}

impl Gateway {
    /// Starts this program again as a gateway, and waits until it listens.
    pub(super) async fn start(program: &Path, config: &Path, listen: SocketAddr) -> Seen<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "--stop-with-stdin", "--config"]).arg(config);
        command.args(["--listen", &listen.to_string()]);
        // Its input ends with us, however we end. A signal from the keyboard is ours alone.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let cannot = |error: std::io::Error| format!("the gateway cannot be started: {error}");
        let mut child = command.spawn().map_err(cannot)?;
        let (Some(stderr), Some(pid)) = (child.stderr.take(), child.id()) else {
            return Err("the gateway ended at once".to_owned());
        };
        let mut lines = BufReader::new(stderr).lines();
        let address = tokio::time::timeout(PATIENCE, listening(&mut lines)).await;
        let address =
            address.map_err(|_| format!("the gateway said nothing for {PATIENCE:?}"))??;
        let last_words = Arc::default();
        Handle::current().spawn(drain(lines, Arc::clone(&last_words)));
        Ok(Self { child, pid, address, last_words })
    }

    /// Ends it without a warning.
    pub(super) async fn kill(&mut self) -> Seen<()> {
        if let Ok(Some(status)) = self.child.try_wait() {
            let last = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
            return Err(format!("the gateway was gone before it was killed ({status}): {last}"));
        }
        self.child.kill().await.map_err(|error| format!("the gateway cannot be killed: {error}"))
    }

    /// Lets it end as it should.
    pub(super) async fn stop(mut self) {
        drop(self.child.stdin.take());
        if tokio::time::timeout(PATIENCE, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

/// Reads until it says where it listens.
async fn listening(lines: &mut Lines<BufReader<ChildStderr>>) -> Seen<SocketAddr> {
    let mut said = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let url = line.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        if let Some(address) = url.and_then(|address| address.parse().ok()) {
            return Ok(address);
        }
        said = line;
    }
    Err(format!("the gateway did not come up: {said}"))
}

/// Keeps the last line of what it says. Nobody who writes must wait for us.
async fn drain(mut lines: Lines<BufReader<ChildStderr>>, last_words: Arc<Mutex<String>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        *last_words.lock().unwrap_or_else(PoisonError::into_inner) = line;
    }
}

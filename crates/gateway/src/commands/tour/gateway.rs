//! Gateway of the tour: `stayput serve` as a child process.

use std::{net::SocketAddr, path::Path, process::Stdio, sync::Arc, time::Duration};

use stayput_sync::Mutex;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    runtime::Handle,
};

use super::StepResult;

/// Timeout of the start and of the stop.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Running gateway. Dropping it kills it, and its warden ends the processes it started.
pub(super) struct Gateway {
    child: Child,
    pub(super) pid: u32,
    pub(super) address: SocketAddr,
    stderr_tail: Arc<Mutex<String>>,
}

impl Gateway {
    /// Starts this program as a gateway, and waits until it listens.
    pub(super) async fn start(
        program: &Path,
        config: &Path,
        listen: SocketAddr,
    ) -> StepResult<Self> {
        let mut command = Command::new(program);
        // The address is read from the log, so a variable of the environment must not change it.
        command.args(["serve", "--stop-with-stdin", "--log", "info", "--log-format", "text"]);
        command.arg("--config").arg(config);
        command.args(["--listen", &listen.to_string()]);
        // Its standard input closes when this process ends in any way. It has its own process group, so that Ctrl-C
        // reaches only this process.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let cannot = |error: std::io::Error| format!("the gateway cannot be started: {error}");
        let mut child = command.spawn().map_err(cannot)?;
        let (Some(stderr), Some(pid)) = (child.stderr.take(), child.id()) else {
            return Err("the gateway ended at once".to_owned());
        };
        let mut lines = BufReader::new(stderr).lines();
        let address = tokio::time::timeout(START_TIMEOUT, listening(&mut lines)).await;
        let address =
            address.map_err(|_| format!("the gateway said nothing for {START_TIMEOUT:?}"))??;
        let stderr_tail = Arc::default();
        Handle::current().spawn(drain(lines, Arc::clone(&stderr_tail)));
        Ok(Self { child, pid, address, stderr_tail })
    }

    /// Kills it with SIGKILL.
    pub(super) async fn kill(&mut self) -> StepResult<()> {
        if let Ok(Some(status)) = self.child.try_wait() {
            let last = self.stderr_tail.lock();
            return Err(format!("the gateway was gone before it was killed ({status}): {last}"));
        }
        self.child.kill().await.map_err(|error| format!("the gateway cannot be killed: {error}"))
    }

    /// Stops it gracefully.
    pub(super) async fn stop(mut self) {
        drop(self.child.stdin.take());
        if tokio::time::timeout(START_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

/// Reads lines until one contains the address.
async fn listening(lines: &mut Lines<BufReader<ChildStderr>>) -> StepResult<SocketAddr> {
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

/// Keeps the last line of the gateway's stderr. Reads all lines, so that the gateway never blocks on a full pipe.
async fn drain(mut lines: Lines<BufReader<ChildStderr>>, stderr_tail: Arc<Mutex<String>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        *stderr_tail.lock() = line;
    }
}

//! Support of the tests: hubs with real server processes.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde_json::json;
use stayput::{Builder, Hub, Stdio};
pub(crate) use stayput_testkit::until;
use stayput_testkit::{processes, program};

/// Upper bound for a busy machine; a successful test does not wait for it.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Unique environment value of one test. It identifies the child processes of the test and their descendants.
#[derive(Clone, Debug)]
pub(crate) struct ProcessMarker(String);

impl ProcessMarker {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("agent-{}-{number}-", std::process::id()))
    }

    /// Marker of another process.
    pub(crate) fn with_value(value: &str) -> Self {
        Self(value.to_owned())
    }

    pub(crate) fn value(&self) -> &str {
        &self.0
    }

    /// Ids of the processes with this marker.
    pub(crate) fn processes(&self) -> Vec<u32> {
        processes::with_token(&self.0)
    }

    /// Number of processes of this program with this marker.
    pub(crate) fn processes_of(&self, program: &str) -> usize {
        let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        let runs =
            |pid: &u32| name(pid).is_ok_and(|it| it.split('\0').next().unwrap().ends_with(program));
        self.processes().iter().filter(|pid| runs(pid)).count()
    }

    /// Waits until no process has this marker.
    pub(crate) async fn wait_until_gone(&self) {
        until("all processes are gone", || self.processes().is_empty()).await;
    }

    /// Waits until no process has this marker, without a runtime.
    pub(crate) fn wait_until_gone_blocking(&self) {
        for _ in 0..3_000 {
            if self.processes().is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("processes are left: {:?}", self.processes());
    }

    /// Kills all processes with `SIGKILL`.
    pub(crate) fn kill_processes(&self) {
        for pid in self.processes() {
            std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        }
    }

    /// Adds the marker to the environment of a server.
    pub(crate) fn apply(&self, stdio: Stdio) -> Stdio {
        stdio.env("TOKEN", &self.0)
    }

    /// Test server as a child process, with its own counter and notes.
    pub(crate) fn server(&self) -> Stdio {
        Stdio::new(program("stayput-testserver").to_str().unwrap())
            .args(["stdio", "--era", "legacy"])
            .env("TOKEN", &self.0)
    }
}

/// Builds a hub with the test server as `counter`.
pub(crate) fn hub(marker: &ProcessMarker) -> Hub {
    builder(marker).build().unwrap()
}

pub(crate) fn builder(marker: &ProcessMarker) -> Builder {
    Hub::builder().server("counter", marker.server())
}

/// Increments the counter of the current session, and returns it.
pub(crate) async fn count(hub: &Hub) -> u64 {
    hub.call("counter", "count", json!({})).await.unwrap().text().parse().unwrap()
}

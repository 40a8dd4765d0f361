//! What the tests of the library share: hubs on real processes.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde_json::json;
use stayput::{Builder, Hub, Stdio};
use stayput_testkit::{processes, program};

/// Long enough for everything on a busy machine; nothing that goes well waits for it.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A word that no other test has: it finds the children of this test and all that descends from them.
#[derive(Clone, Debug)]
pub(crate) struct ProcessMarker(String);

impl ProcessMarker {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("agent-{}-{number}-", std::process::id()))
    }

    /// The word itself.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// The processes that carry it.
    pub(crate) fn alive(&self) -> Vec<u32> {
        processes::with_token(&self.0)
    }

    /// Waits until nobody carries it.
    pub(crate) async fn gone(&self) {
        wait_until("all processes are gone", || self.processes().is_empty()).await;
    }

    /// Waits until nobody carries it, without a runtime.
    pub(crate) fn gone_blocking(&self) {
        for _ in 0..3_000 {
            if self.processes().is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("processes are left: {:?}", self.processes());
    }

    /// Kills all of them, as nobody should.
    pub(crate) fn kill(&self) {
        for pid in self.processes() {
            std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        }
    }

    /// A server whose processes carry it.
    pub(crate) fn mark(&self, stdio: Stdio) -> Stdio {
        stdio.env("TOKEN", &self.0)
    }

    /// The test server, a child with a counter and notes of its own.
    pub(crate) fn server(&self) -> Stdio {
        Stdio::new(program("stayput-testserver").to_str().unwrap())
            .args(["stdio", "--era", "legacy"])
            .env("TOKEN", &self.0)
    }
}

/// A hub with the test server as `counter`.
pub(crate) fn hub(marker: &ProcessMarker) -> Hub {
    builder(marker).build().unwrap()
}

pub(crate) fn builder(marker: &ProcessMarker) -> Builder {
    Hub::builder().server("counter", marker.server())
}

/// Counts one up in the current session; says what it counted to.
pub(crate) async fn count(hub: &Hub) -> u64 {
    hub.call("counter", "count", json!({})).await.unwrap().text().parse().unwrap()
}

/// Waits for something to become true.
pub(crate) async fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if check() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not happen in a minute: {what}");
}

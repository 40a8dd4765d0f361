//! Database server or proxy as a child of the test.

use std::{
    io::Read,
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use tempfile::TempDir;

/// Running server process. Killed on drop.
#[derive(Debug)]
pub(crate) struct Server(Child);

impl Server {
    /// Starts `command` and waits until `ready` returns true.
    ///
    /// `Err` contains the output of the server if it exited instead, because its port may have been taken.
    pub(crate) fn start(command: &mut Command, ready: impl Fn() -> bool) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut stderr = child.stderr.take().unwrap();
        let mut server = Self(child);
        for _ in 0..3_000 {
            if let Some(status) = server.0.try_wait().unwrap() {
                let mut said = String::new();
                let _ = stderr.read_to_string(&mut said);
                return Err(format!("{command:?} ended with {status}: {said}"));
            }
            if ready() {
                // Drains stderr, because the server would block on a full pipe.
                thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
                return Ok(server);
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{command:?} is not ready after 30 s");
    }

    /// Returns its process id.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Sends a signal by name and waits for the exit.
    pub(crate) fn end(&mut self, signal: &str) {
        let _ = Command::new("kill").args(["-s", signal, &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Tries several ports, because another process may take one between finding and using it.
pub(crate) fn on_a_free_port<T>(start: impl Fn(u16) -> Result<T, String>) -> T {
    let mut said = String::new();
    for _ in 0..5 {
        match start(free_port()) {
            Ok(started) => return started,
            Err(error) => said = error,
        }
    }
    panic!("{said}");
}

/// Creates a folder for the data of a server.
pub(crate) fn folder() -> TempDir {
    tempfile::Builder::new().prefix("stayput-test-").tempdir().unwrap()
}

/// Returns whether `program` with these arguments succeeds. Discards its output.
pub(crate) fn succeeds(program: &mut Command) -> bool {
    let quiet = program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().unwrap_or_else(|error| panic!("{program:?}: {error}")).success()
}

/// Returns a name that no test has used, even on a long-running server.
pub(crate) fn fresh_name() -> String {
    stayput_core::HolderId::generate().to_string().replace('-', "")
}

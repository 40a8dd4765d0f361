//! Real PostgreSQL server.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::server::{Server, folder, fresh_name, on_a_free_port, succeeds};

/// PostgreSQL server of one test.
#[derive(Debug)]
pub struct Postgres {
    port: u16,
    options: Vec<String>,
    server: Option<Server>,
    folder: TempDir,
}

const USER: &str = "stayput";

impl Postgres {
    /// Starts a server with an empty database.
    #[must_use]
    pub fn start() -> Self {
        Self::with(|_| Vec::new())
    }

    /// Starts a server with additional options, which are computed after its data folder exists.
    #[must_use]
    pub fn with(options: impl Fn(&Path) -> Vec<String>) -> Self {
        on_a_free_port(|port| {
            let folder = folder();
            give_away(folder.path());
            let data = folder.path().join("data");
            let mut init = unprivileged("initdb");
            init.args([
                "--auth=trust",
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C",
                "-U",
                USER,
                "-D",
            ]);
            assert!(succeeds(init.arg(&data)), "initdb failed; is PostgreSQL installed?");
            let options = options(&data);
            let server = Some(run(port, &data, &options)?);
            Ok(Self { port, options, server, folder })
        })
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// Ends it like a crash: clients are disconnected, nothing is written.
    pub fn kill(&mut self) {
        self.server.take().unwrap().end("QUIT");
    }

    /// Starts it again on the same port and data.
    pub fn start_again(&mut self) {
        let data = self.folder.path().join("data");
        self.server = Some(run(self.port, &data, &self.options).unwrap());
    }

    /// Runs one statement.
    ///
    /// # Panics
    /// If it fails.
    pub fn execute(&self, statement: &str) {
        assert!(sql(&self.url(), statement), "{statement}");
    }

    /// Returns the process id of the server.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.server.as_ref().unwrap().id()
    }
}

fn url(port: u16) -> String {
    format!("postgres://{USER}@127.0.0.1:{port}/postgres")
}

fn run(port: u16, data: &Path, options: &[String]) -> Result<Server, String> {
    let mut command = unprivileged("postgres");
    command.arg("-D").arg(data).args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k", ""]);
    command.args(["-c", "fsync=off", "-c", "max_connections=100"]).args(options);
    Server::start(&mut command, || sql(&url(port), "select 1"))
}

/// Runs one statement.
fn sql(url: &str, statement: &str) -> bool {
    succeeds(Command::new(program("psql")).args(["-X", "-q", "-d", url, "-c", statement]))
}

/// Returns a command that runs as the user of the PostgreSQL package if we are root, because PostgreSQL refuses to run
/// as root.
fn unprivileged(name: &str) -> Command {
    if !is_root() {
        return Command::new(program(name));
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"])
        .arg(program(name));
    command
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self")
        .map(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
        .unwrap_or(false)
}

/// Lets that user write into a folder.
fn give_away(folder: &Path) {
    if is_root() {
        assert!(succeeds(Command::new("chown").arg("postgres:postgres").arg(folder)));
    }
}

/// Finds a program of the newest version, because Debian has a folder for each version.
fn program(name: &str) -> PathBuf {
    let mut found: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin").join(name))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| name.into())
}

/// URL of an empty database; the server may be shared with other tests.
#[derive(Debug)]
pub struct PostgresUrl {
    /// Connection URL of the database.
    pub url: String,
    _server: Option<Postgres>,
}

impl PostgresUrl {
    /// Creates one on the server in `STAYPUT_TEST_POSTGRES`, or else on a new one.
    #[must_use]
    pub fn empty() -> Self {
        let (url, server) = match std::env::var("STAYPUT_TEST_POSTGRES") {
            Ok(url) => (url, None),
            Err(_) => {
                let server = Postgres::start();
                (server.url(), Some(server))
            }
        };
        let name = format!("test_{}", fresh_name());
        assert!(sql(&url, &format!("create database {name}")), "no database at {url}");
        let (server_url, _) = url.rsplit_once('/').unwrap();
        Self { url: format!("{server_url}/{name}"), _server: server }
    }
}

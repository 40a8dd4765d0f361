//! A real Redis server.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
};

use tempfile::TempDir;

use crate::server::{Server, folder, on_a_free_port, succeeds};

/// A Redis server of one test's own, which writes every change to disk before it answers.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    options: Vec<String>,
    server: Option<Server>,
    folder: TempDir,
}

impl Redis {
    /// A server.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A cluster of one node: it serves every slot and refuses what crosses slots, as each node of a
    /// larger one does.
    #[must_use]
    pub fn cluster() -> Self {
        let redis = Self::with(&["--cluster-enabled", "yes"]);
        assert!(succeeds(redis.cli().args([
            "cluster",
            "addslotsrange",
            "0",
            "16383"
        ])));
        for _ in 0..1_000 {
            let info = redis
                .cli()
                .args(["cluster", "info"])
                .output()
                .unwrap()
                .stdout;
            if String::from_utf8_lossy(&info).contains("cluster_state:ok") {
                return redis;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("the cluster does not form");
    }

    fn with(options: &[&str]) -> Self {
        let options: Vec<_> = options.iter().map(ToString::to_string).collect();
        on_a_free_port(|port| {
            let folder = folder();
            let server = Some(run(port, folder.path(), &options)?);
            Ok(Self {
                port,
                options: options.clone(),
                server,
                folder,
            })
        })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills it without a warning.
    pub fn kill(&mut self) {
        self.server.take().unwrap().end("KILL");
    }

    /// Lets it hang: connections stay open, nothing answers. Until [`Redis::wake`].
    pub fn freeze(&self) {
        let id = self.server.as_ref().unwrap().id().to_string();
        assert!(succeeds(Command::new("kill").args(["-s", "STOP", &id])));
    }

    /// Lets it go on after [`Redis::freeze`].
    pub fn wake(&self) {
        let id = self.server.as_ref().unwrap().id().to_string();
        assert!(succeeds(Command::new("kill").args(["-s", "CONT", &id])));
    }

    /// Starts it again, on the same port and data.
    pub fn start_again(&mut self) {
        self.server = Some(run(self.port, self.folder.path(), &self.options).unwrap());
    }

    /// Its command line client.
    #[must_use]
    pub fn cli(&self) -> Command {
        cli(self.port)
    }

    /// The folder it writes to.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }
}

fn cli(port: u16) -> Command {
    let mut cli = Command::new("redis-cli");
    cli.args(["-p", &port.to_string()]);
    cli
}

fn run(port: u16, folder: &Path, options: &[String]) -> Result<Server, String> {
    let mut command = Command::new("redis-server");
    command.args([
        "--bind",
        "127.0.0.1",
        "--port",
        &port.to_string(),
        "--save",
        "",
    ]);
    command
        .args(["--appendonly", "yes", "--appendfsync", "always"])
        .arg("--dir")
        .arg(folder);
    command.args(options);
    Server::start(&mut command, || succeeds(cli(port).args(["ping"])))
}

/// The URL of an empty store on a Redis server; the server may be shared with other tests.
#[derive(Debug)]
pub struct RedisUrl {
    /// The URL.
    pub url: String,
    _server: Option<Redis>,
}

impl RedisUrl {
    /// On the server in `STAYPUT_TEST_REDIS`, else on one of its own.
    #[must_use]
    pub fn empty() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (url, server) = match std::env::var("STAYPUT_TEST_REDIS") {
            Ok(url) => (url, None),
            Err(_) => {
                let server = Redis::start();
                (server.url(), Some(server))
            }
        };
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self {
            url: format!("{url}/?prefix=test-{process}-{count}"),
            _server: server,
        }
    }
}

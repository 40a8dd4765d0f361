//! Real Redis server.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::server::{Server, folder, fresh_name, on_a_free_port, succeeds};

/// Redis server of one test, which writes every change to disk before it answers.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    options: Vec<String>,
    encrypted: bool,
    server: Option<Server>,
    folder: TempDir,
}

impl Redis {
    /// Starts a server.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[], false)
    }

    /// Starts a server with more options, which take precedence.
    #[must_use]
    pub fn with_options(options: &[&str]) -> Self {
        Self::with(options, false)
    }

    /// Starts a server with TLS only, with a certificate for `localhost` of its own authority, see
    /// [`Redis::authority`].
    #[must_use]
    pub fn encrypted() -> Self {
        let files = [
            ("--tls-cert-file", "server.pem"),
            ("--tls-key-file", "server.key"),
            ("--tls-ca-cert-file", "authority.pem"),
            ("--tls-auth-clients", "no"),
        ];
        Self::with(&files.map(|(name, value)| [name, value]).concat(), true)
    }

    /// Starts a cluster of one node: it serves every slot and refuses commands across slots, like each node of a
    /// larger one.
    #[must_use]
    pub fn cluster() -> Self {
        let redis = Self::with(&["--cluster-enabled", "yes"], false);
        assert!(succeeds(redis.cli().args(["cluster", "addslotsrange", "0", "16383"])));
        for _ in 0..1_000 {
            let info = redis.cli().args(["cluster", "info"]).output().unwrap().stdout;
            if String::from_utf8_lossy(&info).contains("cluster_state:ok") {
                return redis;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("the cluster does not form");
    }

    fn with(options: &[&str], encrypted: bool) -> Self {
        on_a_free_port(|port| {
            let folder = folder();
            if encrypted {
                certify(folder.path());
            }
            let mut redis = Self {
                port,
                options: options.iter().map(ToString::to_string).collect(),
                encrypted,
                server: None,
                folder,
            };
            redis.server = Some(redis.run()?);
            Ok(redis)
        })
    }

    fn run(&self) -> Result<Server, String> {
        let mut command = Command::new("redis-server");
        let port = self.port.to_string();
        let ports = if self.encrypted {
            ["--port", "0", "--tls-port", &port]
        } else {
            ["--tls-port", "0", "--port", &port]
        };
        command.args(["--bind", "127.0.0.1", "--save", ""]).args(ports);
        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        // File names in the options are relative to the folder.
        command.current_dir(self.folder.path()).args(&self.options);
        Server::start(&mut command, || succeeds(self.cli().args(["-e", "ping"])))
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> String {
        if self.encrypted {
            format!("rediss://localhost:{}", self.port)
        } else {
            format!("redis://127.0.0.1:{}", self.port)
        }
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.server.take().unwrap().end("KILL");
    }

    /// Freezes it until [`Redis::wake`]: connections stay open, but get no answer.
    pub fn freeze(&self) {
        let id = self.server.as_ref().unwrap().id().to_string();
        assert!(succeeds(Command::new("kill").args(["-s", "STOP", &id])));
    }

    /// Resumes it after [`Redis::freeze`].
    pub fn wake(&self) {
        let id = self.server.as_ref().unwrap().id().to_string();
        assert!(succeeds(Command::new("kill").args(["-s", "CONT", &id])));
    }

    /// Starts it again on the same port and data.
    pub fn start_again(&mut self) {
        self.server = Some(self.run().unwrap());
    }

    /// Returns its command line client.
    #[must_use]
    pub fn cli(&self) -> Command {
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &self.port.to_string()]);
        if self.encrypted {
            cli.arg("--tls").arg("--cacert").arg(self.authority());
        }
        cli
    }

    /// Returns the certificate of the authority that signed the one of [`Redis::encrypted`].
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// Returns the folder that it writes to.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }
}

/// Creates an authority and a certificate for `localhost` that it signed.
fn certify(folder: &Path) {
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    let authority = "-subj /CN=authority -keyout authority.key -out authority.pem";
    let signed = "-subj /CN=localhost -keyout server.key -out server.pem -CA authority.pem -CAkey authority.key";
    let names = ["-addext", "subjectAltName=DNS:localhost"];
    let leaf = ["-addext", "basicConstraints=critical,CA:FALSE"];
    for (words, more) in [(authority, [].as_slice()), (signed, &[names, leaf].concat())] {
        let mut openssl = Command::new("openssl");
        openssl.args(format!("{new} {words}").split(' ')).args(more);
        assert!(succeeds(openssl.current_dir(folder)), "{openssl:?}");
    }
}

/// URL of an empty store on a Redis server; the server may be shared with other tests.
#[derive(Debug)]
pub struct RedisUrl {
    /// URL.
    pub url: String,
    _server: Option<Redis>,
}

impl RedisUrl {
    /// Creates one on the server in `STAYPUT_TEST_REDIS`, or else on a new one.
    #[must_use]
    pub fn empty() -> Self {
        Self::on("STAYPUT_TEST_REDIS", Redis::start)
    }

    /// Creates one on the cluster in `STAYPUT_TEST_REDIS_CLUSTER`, or else on a new one, which takes two seconds to
    /// form.
    #[must_use]
    pub fn empty_on_a_cluster() -> Self {
        Self::on("STAYPUT_TEST_REDIS_CLUSTER", Redis::cluster)
    }

    fn on(variable: &str, start: impl Fn() -> Redis) -> Self {
        let (url, server) = match std::env::var(variable) {
            Ok(url) => (url, None),
            Err(_) => {
                let server = start();
                (server.url(), Some(server))
            }
        };
        Self { url: format!("{url}/?prefix={}", fresh_name()), _server: server }
    }
}

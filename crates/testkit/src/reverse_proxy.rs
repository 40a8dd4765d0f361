//! Real nginx or HAProxy in front of a gateway.

use std::{fs, io, net::TcpStream, os::unix::net::UnixDatagram, path::Path, process::Command};

use tempfile::TempDir;

use crate::{
    peers::on_path,
    server::{Server, folder, free_port, on_a_free_port},
};

/// Kind of a reverse proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    /// nginx that passes bodies on as they come.
    Nginx,
    /// The same nginx, which also forwards headers that it would drop as invalid.
    LenientNginx,
    /// HAProxy.
    Haproxy,
    /// The same HAProxy, which also forwards requests that it would refuse as invalid.
    LenientHaproxy,
}

impl ProxyKind {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Nginx, Self::LenientNginx, Self::Haproxy, Self::LenientHaproxy];

    fn program(self) -> &'static str {
        match self {
            Self::Nginx | Self::LenientNginx => "nginx",
            Self::Haproxy | Self::LenientHaproxy => "haproxy",
        }
    }
}

/// Reverse proxy with a port for each user. It names the user in `X-Forwarded-User`, and uses the same connections to
/// the gateway for all of them.
#[derive(Debug)]
pub struct ReverseProxy {
    _server: Server,
    _folder: TempDir,
    /// Users with their ports.
    users: Vec<(&'static str, u16)>,
    /// Access log: a datagram for each request, with port, method and status.
    log: UnixDatagram,
    answered: Vec<u16>,
}

impl ReverseProxy {
    /// Starts a proxy in front of the gateway at `upstream`, such as `127.0.0.1:8080`.
    #[must_use]
    pub fn start(kind: ProxyKind, upstream: &str, users: &[&'static str]) -> Self {
        on_a_free_port(|first| {
            let ports = (0..users.len()).map(|n| if n == 0 { first } else { free_port() });
            Self::run(kind, upstream, users.iter().copied().zip(ports).collect())
        })
    }

    fn run(
        kind: ProxyKind,
        upstream: &str,
        users: Vec<(&'static str, u16)>,
    ) -> Result<Self, String> {
        let folder = folder();
        let log = UnixDatagram::bind(folder.path().join("log")).unwrap();
        log.set_nonblocking(true).unwrap();
        let file = folder.path().join("config");
        let program = program(kind.program());
        let mut command = Command::new(program);
        let config = if kind.program() == "nginx" {
            command.args(["-e", "stderr", "-c"]).arg(&file);
            nginx(folder.path(), upstream, &users, kind == ProxyKind::LenientNginx)
        } else {
            command.args(["-db", "-f"]).arg(&file);
            haproxy(folder.path(), upstream, &users, kind == ProxyKind::LenientHaproxy)
        };
        fs::write(&file, config).unwrap();
        let ready =
            || users.iter().all(|(_, port)| TcpStream::connect(("127.0.0.1", *port)).is_ok());
        let server = Server::start(&mut command, ready)?;
        Ok(Self { _server: server, _folder: folder, users, log, answered: Vec::new() })
    }

    /// Returns the address for the requests of a user.
    #[must_use]
    pub fn address(&self, user: &str) -> String {
        format!("127.0.0.1:{}", self.port(user))
    }

    fn port(&self, user: &str) -> u16 {
        self.users.iter().find(|(name, _)| *name == user).expect("a user of this proxy").1
    }

    /// Returns how many POSTs of a user the proxy has forwarded and seen answered with 200, by its access log.
    pub fn answered(&mut self, user: &str) -> usize {
        let mut line = [0; 1024];
        loop {
            match self.log.recv(&mut line) {
                Ok(read) => self.answered.extend(answered(&String::from_utf8_lossy(&line[..read]))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let port = self.port(user);
        self.answered.iter().filter(|it| **it == port).count()
    }
}

/// Returns the port of a log line about a POST that was answered with 200.
fn answered(line: &str) -> Option<u16> {
    let mut words = line.split_whitespace().rev();
    let (status, method, port) = (words.next()?, words.next()?, words.next()?);
    (status == "200" && method == "POST").then(|| port.parse().ok()).flatten()
}

/// Finds a proxy, also in the folder for system programs.
pub(crate) fn program(name: &str) -> std::path::PathBuf {
    let system = Path::new("/usr/sbin").join(name);
    let found = on_path(name).or_else(|| system.is_file().then_some(system));
    found.unwrap_or_else(|| panic!("{name} is not here: run `scripts/install peers`"))
}

/// Returns the directives of nginx for its temporary files.
pub(crate) fn temporary_folders(folder: &Path) -> String {
    let folder = folder.display();
    ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/{kind};"))
        .join(" ")
}

/// Returns the configuration of nginx, as one process that writes only to its folder.
fn nginx(folder: &Path, upstream: &str, users: &[(&str, u16)], lenient: bool) -> String {
    let temporary = temporary_folders(folder);
    let folder = folder.display();
    let headers =
        if lenient { "ignore_invalid_headers off; underscores_in_headers on;" } else { "" };
    let servers: String = users
        .iter()
        .map(|(user, port)| {
            format!(
                "server {{ listen 127.0.0.1:{port}; {headers} location / {{ proxy_pass http://gateway;\n\
                 proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host $http_host;\n\
                 proxy_set_header X-Forwarded-User {user}; proxy_request_buffering off; }} }}\n"
            )
        })
        .collect();
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log stderr crit;\n\
         events {{ worker_connections 256; }}\n\
         http {{ {temporary} log_format short '$server_port $request_method $upstream_status';\n\
         access_log syslog:server=unix:{folder}/log,nohostname short;\n\
         client_header_timeout 2s; client_body_timeout 2s; keepalive_timeout 2s;\n\
         large_client_header_buffers 4 128k;\n\
         upstream gateway {{ server {upstream}; keepalive 4; }}\n{servers}}}\n"
    )
}

/// Returns the configuration of HAProxy, with one thread, because each thread has its own idle connections.
fn haproxy(folder: &Path, upstream: &str, users: &[(&str, u16)], lenient: bool) -> String {
    let folder = folder.display();
    let option = if lenient { "option accept-invalid-http-request" } else { "" };
    let frontends: String = users
        .iter()
        .map(|(user, port)| {
            format!(
                "frontend {user}\n  bind 127.0.0.1:{port}\n  {option}\n  \
                 http-request set-header X-Forwarded-User {user}\n  default_backend gateway\n"
            )
        })
        .collect();
    format!(
        "global\n  log {folder}/log len 1024 format raw local0\n  nbthread 1\n  tune.bufsize 131072\n\
         defaults\n  mode http\n  log global\n  log-format \"%fp %HM %ST\"\n  option http-keep-alive\n  \
         http-reuse always\n  retries 0\n  timeout client 2s\n  timeout http-request 2s\n  \
         timeout http-keep-alive 2s\n  timeout connect 5s\n  timeout server 30s\n\
         {frontends}backend gateway\n  server gateway {upstream} pool-max-conn 4\n"
    )
}

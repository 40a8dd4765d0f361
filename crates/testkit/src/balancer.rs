//! Real nginx as a balancer: a plain round robin over several gateways.

use std::{fs, net::TcpStream, path::Path, process::Command};

use tempfile::TempDir;

use crate::{
    reverse_proxy::{program, temporary_folders},
    server::{Server, folder, on_a_free_port},
};

/// nginx in front of several gateways, without stickiness. It sends each request once: if a gateway does not answer it,
/// it fails.
#[derive(Debug)]
pub struct Balancer {
    _server: Server,
    folder: TempDir,
    port: u16,
}

/// Request that passed a [`Balancer`], as its access log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalancedRequest {
    /// Address of the gateway.
    pub gateway: String,
    /// HTTP method.
    pub method: String,
    /// Status that the client got.
    pub status: u16,
}

impl Balancer {
    /// Starts one in front of gateways at these addresses, such as `127.0.0.1:8080`.
    #[must_use]
    pub fn start(gateways: &[&str]) -> Self {
        on_a_free_port(|port| {
            let folder = folder();
            let file = folder.path().join("config");
            fs::write(&file, configuration(folder.path(), port, gateways)).unwrap();
            let mut command = Command::new(program("nginx"));
            command.args(["-e", "stderr", "-c"]).arg(&file);
            let ready = || TcpStream::connect(("127.0.0.1", port)).is_ok();
            let server = Server::start(&mut command, ready)?;
            Ok(Self { _server: server, folder, port })
        })
    }

    /// Returns its URL, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns all requests so far that are over.
    #[must_use]
    pub fn requests(&self) -> Vec<BalancedRequest> {
        let log = fs::read_to_string(self.folder.path().join("access")).unwrap();
        log.lines().map(parse).collect()
    }
}

/// Parses a line of the access log.
fn parse(line: &str) -> BalancedRequest {
    let words: Vec<_> = line.split('\t').collect();
    let [gateway, method, status] = words[..] else { panic!("{line}") };
    let status = status.parse().unwrap();
    BalancedRequest { gateway: gateway.to_owned(), method: method.to_owned(), status }
}

/// Returns the configuration of nginx, as one process that writes only to its folder.
fn configuration(folder: &Path, port: u16, gateways: &[&str]) -> String {
    let temporary = temporary_folders(folder);
    let folder = folder.display();
    let gateways: String =
        gateways.iter().map(|address| format!("server {address} max_fails=0; ")).collect();
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log stderr crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ {temporary} log_format short '$upstream_addr\t$request_method\t$status';\n\
         access_log {folder}/access short;\n\
         upstream gateways {{ {gateways} keepalive 64; }}\n\
         server {{ listen 127.0.0.1:{port} backlog=4096; client_max_body_size 0;\n\
         location / {{ proxy_pass http://gateways; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
         proxy_set_header Host $http_host; proxy_buffering off; proxy_read_timeout 1h;\n\
         proxy_next_upstream off; }} }} }}\n"
    )
}

//! TLS of the gateway, with the real `openssl` and `curl` as clients.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
};

use serde_json::{Value, json};
use stayput_testkit::Authority;
use support::{Gateway, LONG, mark, stdio, until};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Folder with the certificate and the key of a gateway.
struct Files(TempDir);

impl Files {
    /// Creates a certificate for this machine with the given common name.
    fn new(name: &str) -> Self {
        let files = Self(TempDir::new().unwrap());
        files.create(name);
        files
    }

    fn cert(&self) -> PathBuf {
        self.0.path().join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.path().join("key.pem")
    }

    fn settings(&self) -> Value {
        json!({ "cert": self.cert().to_str().unwrap(), "key": self.key().to_str().unwrap() })
    }

    /// Replaces both files. Each is renamed into its place, as tools for certificates do.
    fn create(&self, name: &str) {
        let (cert, key) = (self.0.path().join("new.cert"), self.0.path().join("new.key"));
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        command.args(["-nodes", "-days", "2", "-subj", &format!("/CN={name}")]);
        command.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
        let created = command.arg("-keyout").arg(&key).arg("-out").arg(&cert).output().unwrap();
        assert!(created.status.success(), "{created:?}");
        std::fs::rename(cert, self.cert()).unwrap();
        std::fs::rename(key, self.key()).unwrap();
    }
}

async fn gateway(name: &str, files: &Files, limits: Value) -> Gateway {
    let settings = json!({ "tls": files.settings(), "limits": limits });
    let gateway = Gateway::with(json!({ "test": stdio(&mark(name), &[]) }), settings).await;
    assert!(gateway.url.starts_with("https://127.0.0.1:"), "{}", gateway.url);
    gateway
}

fn address(gateway: &Gateway) -> &str {
    gateway.url.trim_start_matches("https://")
}

/// Performs a handshake with `openssl s_client` and disconnects.
fn handshake(gateway: &Gateway, options: &[&str]) -> Output {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", address(gateway)]).args(options);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Returns the common name in the certificate that new connections get.
fn name(gateway: &Gateway) -> String {
    let shown = String::from_utf8(handshake(gateway, &[]).stdout).unwrap();
    let line = shown.lines().find_map(|line| line.strip_prefix("subject=CN = "));
    line.unwrap_or_else(|| panic!("no certificate: {shown}")).to_owned()
}

/// Posts a message with `curl`, which checks the certificate. Returns the response with its head.
fn post(gateway: &Gateway, cert: &Path, headers: &[&str], message: &Value) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--include", "--max-time", "30", "--cacert"]);
    command.arg(cert).args(["--data", &message.to_string()]);
    for header in ["content-type: application/json", "accept: application/json, text/event-stream"]
        .iter()
        .chain(headers)
    {
        command.args(["--header", header]);
    }
    let said = command.arg(format!("{}/mcp/test", gateway.url)).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}

/// A real HTTPS client verifies the certificate and calls a tool.
#[tokio::test]
async fn https_client_calls_a_tool() {
    let files = Files::new("stayput");
    let gateway = gateway("tls-call", &files, json!({})).await;
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "curl", "version": "1" } } });
    let said = post(&gateway, &files.cert(), &[], &hello);
    let session = said.lines().find(|line| line.starts_with("mcp-session-id: "));
    let session = session.unwrap_or_else(|| panic!("no session: {said}")).to_owned();
    let call = |name: &str, arguments: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": name, "arguments": arguments } })
    };
    for number in 1..=2 {
        let said = post(&gateway, &files.cert(), &[&session], &call("count", json!({})));
        assert!(said.contains(&format!(r#""text":"{number}""#)), "{said}");
    }
    // More than one TLS record, and an answer that becomes a stream.
    let said =
        post(&gateway, &files.cert(), &[&session], &call("big", json!({ "bytes": 1 << 20 })));
    assert!(said.len() > 1 << 20, "{} bytes", said.len());
    let said = post(&gateway, &files.cert(), &[&session], &call("slow", json!({ "ms": 2_500 })));
    assert!(said.contains("text/event-stream") && said.contains("\"result\""), "{said}");
    // Another certificate does not vouch for this one.
    let other = Files::new("other");
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--cacert"])
        .arg(other.cert())
        .arg(format!("{}/healthz", gateway.url));
    assert!(!command.output().unwrap().status.success());
}

/// Versions before TLS 1.2 are refused by the gateway, not only by the client.
#[tokio::test]
async fn old_versions_of_tls_are_refused() {
    let files = Files::new("stayput");
    let gateway = gateway("tls-versions", &files, json!({})).await;
    for (version, shown) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let done = handshake(&gateway, &[version]);
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains(&format!("New, {shown}")), "{done:?}");
    }
    for version in ["-tls1", "-tls1_1"] {
        // The client would speak it, and gets an alert.
        let done = handshake(&gateway, &[version, "-cipher", "ALL:@SECLEVEL=0"]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains("SSL alert number"), "{done:?}");
    }
    for weak in ["aNULL:@SECLEVEL=0", "RC4:@SECLEVEL=0", "AES128-SHA:@SECLEVEL=0"] {
        let done = handshake(&gateway, &["-tls1_2", "-cipher", weak]);
        assert!(!done.status.success(), "{weak}: {done:?}");
    }
    // HTTP/1.1 is the only protocol, also for a client that prefers another.
    let done = handshake(&gateway, &["-alpn", "h2,http/1.1"]);
    assert!(String::from_utf8_lossy(&done.stdout).contains("ALPN protocol: http/1.1"), "{done:?}");
}

/// Open connection of `openssl s_client`.
struct Connection {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Connection {
    fn open(gateway: &Gateway) -> Self {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-connect", address(gateway)]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// Asks for the health of the gateway.
    fn expect_health(&mut self) {
        self.input.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        self.input.flush().unwrap();
        let mut line = String::new();
        while line != "ok\n" {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the connection was closed");
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition holds.
/// New connections get a replaced certificate, and open ones go on. A broken certificate is reported, and the one
/// before holds.
#[tokio::test]
async fn replaced_certificate_is_used_for_new_connections() {
    let files = Files::new("first");
    let gateway = gateway("tls-replaced", &files, json!({})).await;
    assert_eq!(name(&gateway), "first");
    let mut open = Connection::open(&gateway);
    open.expect_health();
    files.create("second");
    until("the new certificate is used", || name(&gateway) == "second").await;
    open.expect_health();
    for (broken, reason) in [
        ("nothing\n".to_owned(), "stayput.tls.cert: the file holds none in PEM format"),
        (
            std::fs::read_to_string(Files::new("third").cert()).unwrap(),
            "does not belong to the certificate",
        ),
    ] {
        std::fs::write(files.cert(), broken).unwrap();
        until(reason, || gateway.log().contains(reason)).await;
        assert!(gateway.log().contains("the one before holds"), "{}", gateway.log());
        assert_eq!(name(&gateway), "second");
    }
    files.create("fourth");
    until("the certificate is not repaired", || name(&gateway) == "fourth").await;
    open.expect_health();
    // Without restart, no connection loses its encryption.
    let mut all: Value = serde_json::from_str(&gateway.configuration()).unwrap();
    all["stayput"].as_object_mut().unwrap().remove("tls");
    gateway.write(&all.to_string());
    until("nothing is said", || gateway.log().contains("still listens with encryption")).await;
    assert_eq!(name(&gateway), "fourth");
}

/// A handshake that fails, or does not come to its end, closes the connection and leaves others alone.
#[tokio::test]
async fn unfinished_handshake_is_closed() {
    let files = Files::new("stayput");
    let gateway = gateway("tls-unfinished", &files, json!({ "stall": "1s", "sockets": 4 })).await;
    let mut open = Connection::open(&gateway);
    open.expect_health();
    for said in ["", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", "\u{16}\u{3}\u{1}"] {
        let mut socket = TcpStream::connect(address(&gateway)).await.unwrap();
        socket.write_all(said.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(LONG, socket.read_to_end(&mut answer)).await;
        // The answer is a TLS alert, or nothing; the connection may be reset.
        let _ = read.expect("the connection stays open");
        assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
    }
    open.expect_health();
    // At the limit of sockets the idle connection makes room. Beside unfinished handshakes a client is disconnected
    // without plain text.
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(TcpStream::connect(address(&gateway)).await.unwrap());
    }
    let mut late = TcpStream::connect(address(&gateway)).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(LONG, late.read_to_end(&mut answer)).await;
    let _ = read.expect("the connection stays open");
    assert!(answer.is_empty(), "{answer:?}");
    assert!(!gateway.log().contains("handshake"), "{}", gateway.log());
}

/// `stayput check` and `stayput serve` say which file of `tls` cannot be used.
#[test]
fn unusable_certificate_is_reported_with_its_place() {
    let (files, other) = (Files::new("stayput"), Files::new("other"));
    let config = files.0.path().join("stayput.json");
    let path = |path: PathBuf| path.to_str().unwrap().to_owned();
    for (cert, key, said) in [
        (path(files.cert()), "away.pem".to_owned(), "stayput.tls.key: "),
        ("away.pem".to_owned(), path(files.key()), "stayput.tls.cert: "),
        (path(files.key()), path(files.key()), "stayput.tls.cert: the file holds none"),
        (path(files.cert()), path(other.key()), "stayput.tls: the key in \"key\" does not belong"),
    ] {
        let text = json!({ "mcpServers": {}, "stayput": { "tls": { "cert": cert, "key": key } } });
        std::fs::write(&config, text.to_string()).unwrap();
        for command in ["check", "serve"] {
            let mut stayput = Command::new(env!("CARGO_BIN_EXE_stayput"));
            stayput.arg(command).arg("--config").arg(&config);
            let done = stayput.env("XDG_DATA_HOME", files.0.path()).output().unwrap();
            let shown = String::from_utf8_lossy(&done.stderr);
            assert!(!done.status.success() && shown.contains(said), "{command}: {shown}");
        }
    }
}

/// R139: a server's certificate is checked against the authorities of `SSL_CERT_FILE`, and only against those.
#[tokio::test]
async fn certificate_of_a_server_is_checked_by_ssl_cert_file() {
    let (authority, other) = (Authority::default(), Authority::default());
    let tls = json!({ "cert": authority.server_cert(), "key": authority.server_key() });
    let servers = json!({ "test": stdio(&mark("tls-server"), &[]) });
    let server = Gateway::with(servers, json!({ "tls": tls })).await;
    let mut gateway = Gateway::start(json!({ "test": { "url": server.at("test") } })).await;
    let refusal = async |gateway: &Gateway| {
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "tls", "version": "1" } } });
        let answer = gateway.post("test", &[], &hello.to_string()).await;
        answer.message().await["error"]["message"].as_str().unwrap_or_default().to_owned()
    };
    let message = refusal(&gateway).await;
    assert!(message.contains("UnknownIssuer") && message.contains("`ca_file`"), "{message}");
    gateway.restart_with("SSL_CERT_FILE", other.file()).await;
    assert!(refusal(&gateway).await.contains("no secure connection"));
    gateway.restart_with("SSL_CERT_FILE", authority.file()).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    gateway.restart_with("SSL_CERT_FILE", other.file().join("none")).await;
    client.text(&gateway, "count").await;
    assert!(gateway.log().contains("SSL_CERT_FILE"), "{}", gateway.log());
}

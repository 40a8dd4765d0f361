//! Malformed requests to a real gateway over real sockets.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

/// Timeout of an answer, far above its usual time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Statuses that a gateway may answer to any request: a client error, or the limit of sessions.
const FAULTS: [u16; 15] =
    [200, 202, 400, 403, 404, 405, 406, 408, 411, 413, 414, 415, 417, 429, 431];

const PATHS: [&str; 14] = [
    "/mcp/test",
    "/mcp/test",
    "/mcp/test",
    "/sse/test",
    "/sse/test/messages?session=$SESSION",
    "/sse/test/messages",
    "/sse//messages?session=&session=",
    "/mcp/",
    "/mcp",
    "/mcp/test/",
    "/mcp/%74est",
    "/mcp/../mcp/test",
    "/healthz",
    "*",
];

const HEADERS: [&str; 25] = [
    "accept: application/json, text/event-stream",
    "accept: application/json, text/event-stream",
    "accept: text/event-stream",
    "accept: */*",
    "accept: \u{fc}",
    "content-type: application/json",
    "content-type: text/plain",
    "mcp-session-id: $SESSION",
    "mcp-session-id: $SESSION",
    "mcp-session-id: sp_",
    "mcp-session-id: ../../etc",
    "mcp-session-id: \u{1F600}",
    "mcp-protocol-version: 2025-11-25",
    "mcp-protocol-version: 2026-07-28",
    "mcp-protocol-version: 0000-00-00",
    "last-event-id: 1",
    "last-event-id: ",
    "last-event-id: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "origin: http://localhost:1",
    "origin: null",
    "origin: http://evil.example.com",
    "mcp-method: tools/call",
    "mcp-name: =?base64?//8=?=",
    "expect: 100-continue",
    "authorization: Bearer",
];

const BODIES: [&str; 18] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count","arguments":{}}}"#,
    r#"{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"cursor":"x"}}"#,
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"f","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":7,"capabilities":[],"clientInfo":null}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
    r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":""}}"#,
    r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":1,"method":"ping"},7]"#,
    "[]",
    r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
    r#"{"jsonrpc":"2.0","id":1.5e300,"method":"resources/read","params":{"uri":"\u0000"}}"#,
    r#"{"jsonrpc":"2.0","id":18446744073709551616,"method":"logging/setLevel","params":{"level":[]}}"#,
    r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping","method":"tools/call"}"#,
    r#"{"jsonrpc":"1.0","id":{},"method":{}}"#,
    "\u{feff}{}",
    "",
];

/// Choices from the input of the fuzzer. After its end, always the first choice.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    fn one_in(&mut self, n: u8) -> bool {
        self.byte() % n == n - 1
    }
}

/// Request as it is sent.
#[derive(Clone, Debug)]
pub struct Request {
    bytes: Vec<u8>,
    /// Whether the request is complete. If so, it is answered; otherwise the sender closes the connection.
    whole: bool,
}

/// Builds a request that is nearly valid, or not at all. `session` is the id of a connected client.
#[must_use]
pub fn request(data: &[u8], session: &str) -> Request {
    let mut choices = Choices(data);
    let method =
        choices.of(&["POST", "POST", "POST", "GET", "DELETE", "PUT", "OPTIONS", "get", "\u{1}"]);
    let mut head = format!("{method} {} HTTP/1.1\r\n", choices.of(&PATHS));
    head.push_str(match choices.byte() {
        0..=247 => "host: localhost\r\n",
        248..=251 => "host: evil.example.com\r\n",
        _ => "",
    });
    for _ in 0..choices.byte() % 8 {
        head.push_str(choices.of(&HEADERS));
        head.push_str("\r\n");
    }
    let mut whole = true;
    if choices.one_in(32) {
        // The request is refused before it is read completely, and a client that is still writing may miss the answer.
        whole = false;
        let _ = write!(head, "x-large: {}\r\n", "x".repeat(200 << 10));
    }
    let mut body = choices.of(&BODIES).as_bytes().to_vec();
    if choices.one_in(64) {
        body = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    }
    for _ in 0..choices.byte() % 4 {
        mutate(&mut body, &mut choices);
    }
    match choices.byte() % 16 {
        13 => head.push_str("content-length: -1\r\n"),
        14 => {
            whole = false;
            head.push_str("content-length: 99999999\r\n");
        }
        15 => {
            whole = false;
            head.push_str("transfer-encoding: chunked\r\n");
        }
        _ => {
            let _ = write!(head, "content-length: {}\r\n", body.len());
        }
    }
    let head = head.replace("$SESSION", session);
    let mut bytes = [head.as_bytes(), b"\r\n", &body].concat();
    if choices.one_in(16) {
        whole = false;
        mutate(&mut bytes, &mut choices);
    }
    Request { bytes, whole }
}

/// Changes, removes or repeats some bytes.
fn mutate(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let place = usize::from(choices.byte()) << 8 | usize::from(choices.byte());
    let at = place % (bytes.len() + 1);
    match choices.byte() % 4 {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, choices.byte()),
        2 => bytes.extend_from_within(at..),
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = choices.byte();
            }
        }
    }
}

/// Sends a request and closes the connection after the head of the answer. Returns the status, if any.
fn status(address: &str, request: &Request) -> Option<u16> {
    let Request { bytes, whole } = request;
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
    // A gateway that refuses a request early need not read all of it.
    let _ = socket.write_all(bytes);
    if !whole {
        let _ = socket.shutdown(Shutdown::Write);
    }
    let mut answer = BufReader::new(socket);
    let mut line = String::new();
    loop {
        line.clear();
        match answer.read_line(&mut line) {
            // An interim response, not the answer.
            Ok(_) if line.starts_with("HTTP/1.1 100") => {
                let _ = answer.read_line(&mut line);
            }
            Ok(0) => return None,
            Ok(_) => return Some(line[9..12].parse().unwrap()),
            Err(error) => {
                let waited = error.kind() == std::io::ErrorKind::WouldBlock;
                assert!(!waited, "no answer to {:?}", String::from_utf8_lossy(bytes));
                return None;
            }
        }
    }
}

/// Checks that a gateway answers any request with an allowed status.
pub fn check(address: &str, request: &Request) {
    let status = status(address, request);
    let fine = status.map_or(!request.whole, |status| FAULTS.contains(&status));
    assert!(fine, "{status:?} to {:?}", String::from_utf8_lossy(&request.bytes));
}

/// Headers with generated values.
const MADE_UP: [&str; 16] = [
    "accept",
    "content-type",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "mcp-param-x",
    "last-event-id",
    "stayput-session",
    "cookie",
    "origin",
    "host",
    "traceparent",
    "baggage",
    "authorization",
    "x-forwarded-user",
];

/// Removes line breaks.
fn line(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().filter(|byte| !b"\r\n".contains(byte)).take(4096).collect()
}

/// Builds a request with generated headers: one byte chooses the header, and a line break ends its value.
#[must_use]
pub fn with_headers(data: &[u8]) -> Request {
    let mut choices = Choices(data);
    let method = choices.of(&["POST", "GET", "DELETE"]);
    let path = choices.of(&["/mcp/test", "/mcp", "/sse/test/messages", "/mcp/test/~key"]);
    let body = choices.of(&BODIES);
    let mut bytes = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    let mut host = false;
    for header in choices.0.split(|byte| *byte == b'\n').take(32) {
        let Some((which, value)) = header.split_first() else { continue };
        let name = MADE_UP[usize::from(*which) % MADE_UP.len()];
        host |= name == "host";
        bytes.extend([name.as_bytes(), b": ", &line(value), b"\r\n"].concat());
    }
    if !host {
        bytes.extend(b"host: localhost\r\n");
    }
    bytes.extend(format!("content-length: {}\r\n\r\n{body}", body.len()).into_bytes());
    Request { bytes, whole: true }
}

/// Builds a request with a generated path.
#[must_use]
pub fn with_path(data: &[u8]) -> Request {
    let mut choices = Choices(data);
    let method = choices.of(&["POST", "GET", "DELETE", "OPTIONS"]);
    let start = choices.of(&["/", "/mcp/", "/mcp/test/~", "/sse/", "/.well-known/", ""]);
    let path: Vec<u8> = line(choices.0).into_iter().filter(|byte| *byte != b' ').collect();
    let body = if method == "POST" { BODIES[3] } else { "" };
    let mut bytes = [method.as_bytes(), b" ", start.as_bytes(), &path].concat();
    bytes.extend(
        format!(
            " HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes(),
    );
    Request { bytes, whole: true }
}

/// Builds a request with a generated token.
#[must_use]
pub fn with_token(data: &[u8]) -> Request {
    let body = BODIES[3];
    let mut bytes =
        b"POST /mcp/test HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ".to_vec();
    bytes.extend(line(data));
    bytes.extend(format!("\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes());
    Request { bytes, whole: true }
}

/// Checks that no generated token is accepted: it is invalid, or the issuer is unreachable.
pub fn check_token(address: &str, request: &Request) {
    let status = status(address, request);
    let fine = status.is_some_and(|status| [400, 401, 431, 503].contains(&status));
    assert!(fine, "{status:?} to {:?}", String::from_utf8_lossy(&request.bytes));
}

/// Opens a client of the gateway and returns its id.
#[must_use]
pub fn connect(address: &str) -> String {
    let body = BODIES[3];
    let request = format!(
        "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let line = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    line.unwrap_or_else(|| panic!("no session: {answer}")).to_owned()
}

/// Gateway for the fuzzer. `STAYPUT_FUZZ_GATEWAY` names its program.
struct Running {
    address: String,
    session: String,
    _child: Child,
    _folder: tempfile::TempDir,
}

impl Running {
    /// Starts a gateway with these settings.
    fn start(settings: &serde_json::Value) -> Self {
        let program = std::env::var("STAYPUT_FUZZ_GATEWAY")
            .expect("STAYPUT_FUZZ_GATEWAY names the program `stayput`; scripts/fuzz sets it");
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("stayput.json");
        let server = serde_json::json!({ "command": program, "args": ["demo-server"] });
        let text = serde_json::json!({ "mcpServers": { "test": server }, "stayput": settings });
        std::fs::write(&config, text.to_string()).unwrap();
        // However the fuzzer ends, its end of the pipe is closed. Then the gateway ends, and its folder is removed.
        let mut command = Command::new("sh");
        command.args([
            "-c",
            r#""$@" & read -r _; kill $!; wait; rm -rf "$XDG_DATA_HOME""#,
            "sh",
            &program,
        ]);
        command.args(["serve", "--log-format", "text", "--listen", "127.0.0.1:0"]);
        command.args(["--store", "memory:", "--config"]);
        command.arg(&config).env("XDG_DATA_HOME", folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let found =
            lines.find_map(|line| Some(line.split_once("listens on http://")?.1.to_owned()));
        let address = found.expect("the gateway came up");
        std::thread::spawn(move || lines.for_each(drop));
        let open = settings["auth"].is_null();
        let session = if open { connect(&address) } else { String::new() };
        Self { address, session, _child: child, _folder: folder }
    }

    fn lives(&self) {
        let bytes = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec();
        let health = Request { bytes, whole: true };
        assert_eq!(status(&self.address, &health), Some(200), "it does not live any more");
    }
}

fn running() -> &'static Running {
    static RUNNING: OnceLock<Running> = OnceLock::new();
    RUNNING.get_or_init(|| Running::start(&serde_json::json!({})))
}

/// Settings of a gateway that accepts tokens of an unreachable issuer.
#[must_use]
pub fn with_issuer() -> serde_json::Value {
    let issuer = "http://127.0.0.1:9";
    serde_json::json!({
        "auth": { "jwt": { "issuer": issuer, "jwks": format!("{issuer}/keys"), "audience": "here" } },
    })
}

/// Checks that no request makes a gateway fail. The gateway is another process, so its coverage does not guide the
/// fuzzer.
pub fn front(data: &[u8]) {
    let running = running();
    check(&running.address, &request(data, &running.session));
    running.lives();
}

/// Checks that no header makes a gateway fail.
pub fn headers(data: &[u8]) {
    check(&running().address, &with_headers(data));
    running().lives();
}

/// Checks that no path makes a gateway fail.
pub fn path(data: &[u8]) {
    check(&running().address, &with_path(data));
    running().lives();
}

/// Checks that no token makes a gateway fail, and that no generated token is accepted.
pub fn jwt(data: &[u8]) {
    static RUNNING: OnceLock<Running> = OnceLock::new();
    let running = RUNNING.get_or_init(|| Running::start(&with_issuer()));
    check_token(&running.address, &with_token(data));
    running.lives();
}

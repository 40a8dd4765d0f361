//! The same attacks behind nginx and HAProxy, which name the user and share connections between users. Each proxy has a
//! strict and a lenient configuration.

use serde_json::{Value, json};
use stayput_testkit::{ProxyKind, ReverseProxy, peers};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    cases::{
        AMBIGUOUS_HEADERS, BROKEN_CHUNKS, BROKEN_LINES, EMPTY_CHUNKS, NAMES, ODDITIES, TARGETS,
    },
    count_request, responses,
    support::{Gateway, LONG, mark, stdio, until},
};

/// Last request of a connection.
const LAST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// User behind the proxy, with a session and a counter.
struct User {
    name: &'static str,
    address: String,
    session: String,
    /// POSTs that the proxy saw answered before the first call.
    before: usize,
    /// Calls of the counter so far.
    counted: u32,
}

impl User {
    async fn new(proxy: &mut ReverseProxy, name: &'static str) -> Self {
        let address = proxy.address(name);
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": name, "version": "1" } } });
        let body = body.to_string();
        let request = format!(
            "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let said = exchange(&address, request.as_bytes()).await;
        let first = responses(&said).swap_remove(0);
        assert_eq!(first.status, 200, "{said}");
        let mut lines = first.head.split("\r\n").filter_map(|line| line.split_once(": "));
        let session =
            lines.find(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id")).unwrap().1;
        wait_for_answered(proxy, name, 1).await;
        Self { name, address, session: session.to_owned(), before: 1, counted: 0 }
    }

    /// Counts once through the proxy, and returns the number that comes back to this request.
    async fn count(&mut self, attack: &str) -> u32 {
        self.counted += 1;
        let request = count_request(&self.session, b"connection: close\r\n", self.counted);
        let said = exchange(&self.address, &request).await;
        let all = responses(&said);
        assert_eq!(all.len(), 1, "{attack}: {all:?}");
        let body: Value = serde_json::from_str(&all[0].body).unwrap_or_else(|_| panic!("{all:?}"));
        assert_eq!(body["id"], self.counted, "{attack}: the answer of another request");
        let text = body["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{attack}: {body}")).parse().unwrap()
    }

    /// Checks that no request ran as this user beyond its own.
    async fn expect_untouched(&mut self, attack: &str) {
        let ran = self.count(attack).await;
        assert_eq!(ran, self.counted, "{attack}: a request ran as {}", self.name);
    }

    /// Checks that no more requests ran as this user than its proxy forwarded.
    async fn expect_forwarded(&mut self, proxy: &mut ReverseProxy, attack: &str) {
        let ran = self.count(attack).await as usize;
        let answered = wait_for_answered(proxy, self.name, self.before + ran).await;
        assert!(self.before + ran <= answered, "{attack}: {ran} ran, {answered} were answered");
    }
}

/// Waits until the access log has so many answers for a user: a proxy writes it after the answer. Returns their number.
async fn wait_for_answered(proxy: &mut ReverseProxy, user: &str, wanted: usize) -> usize {
    let proxy = std::cell::RefCell::new(proxy);
    let what = format!("log of {wanted} answers to {user}, as many as ran");
    until(&what, || proxy.borrow_mut().answered(user) >= wanted).await;
    proxy.borrow_mut().answered(user)
}

/// Sends these bytes and returns everything until the proxy closes the connection.
async fn exchange(address: &str, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.set_nodelay(true).unwrap();
    // A proxy may refuse it before its end, and reset the connection.
    let _ = socket.write_all(bytes).await;
    let mut said = Vec::new();
    let read = tokio::time::timeout(LONG, socket.read_to_end(&mut said)).await;
    let said = String::from_utf8_lossy(&said).into_owned();
    let _ = read.unwrap_or_else(|_| panic!("the connection stays open after {said}"));
    said
}

/// Returns all attacks on the end of a request, each with its bytes.
fn attacks() -> Vec<(String, Vec<u8>)> {
    let post = b"POST /mcp/test HTTP/1.1\r\n";
    let host = b"host: localhost\r\n";
    let chunked = b"transfer-encoding: chunked\r\n\r\n";
    let mut all = Vec::new();
    let mut add = |kind: &str, name: &str, parts: &[&[u8]]| {
        all.push((format!("{kind}, {name}"), parts.concat()));
    };
    for (name, body) in BROKEN_CHUNKS {
        add("broken chunks", name, &[post, host, chunked, body]);
    }
    for (name, framing) in AMBIGUOUS_HEADERS {
        add("ambiguous header", name, &[post, host, framing, b"\r\n", EMPTY_CHUNKS]);
        // A reader that does not see the header takes the length instead.
        let both: [&[u8]; 6] =
            [post, host, b"content-length: 5\r\n", framing, b"\r\n", EMPTY_CHUNKS];
        add("length and ambiguous header", name, &both);
    }
    for (name, line) in BROKEN_LINES {
        add("broken line", name, &[line, host, chunked, EMPTY_CHUNKS]);
    }
    for (name, rest) in ODDITIES {
        add("oddity", name, &[post, host, rest]);
    }
    for (name, line, _) in TARGETS {
        add("target", name, &[line, host, chunked, EMPTY_CHUNKS]);
    }
    let long = "x".repeat(70_000);
    add("size", "header", &[post, host, b"x: ", long.as_bytes(), b"\r\n", chunked, EMPTY_CHUNKS]);
    let path = format!("POST /{long} HTTP/1.1\r\n");
    add("size", "path", &[path.as_bytes(), host, chunked, EMPTY_CHUNKS]);
    let many = "x: y\r\n".repeat(120);
    add("size", "number of headers", &[post, host, many.as_bytes(), chunked, EMPTY_CHUNKS]);
    let extension = format!("0;{long}\r\n\r\n");
    add("size", "chunk extension", &[post, host, chunked, extension.as_bytes()]);
    let trailer = format!("0\r\nx: {long}\r\n\r\n");
    add("size", "trailer", &[post, host, chunked, trailer.as_bytes()]);
    all
}

async fn start(kind: ProxyKind) -> (Gateway, ReverseProxy) {
    let auth = json!({ "proxy": { "header": "X-Forwarded-User", "from": ["127.0.0.0/8"] } });
    let servers = json!({ "test": stdio(&mark(&format!("behind-{kind:?}")), &[]) });
    let gateway = Gateway::with(servers, json!({ "auth": auth })).await;
    let upstream = gateway.url.trim_start_matches("http://");
    let proxy = ReverseProxy::start(kind, upstream, &["attacker", "victim"]);
    (gateway, proxy)
}

async fn expect_no_smuggling(kind: ProxyKind) {
    if peers::are_left_out() {
        return;
    }
    let (_gateway, mut proxy) = start(kind).await;
    let mut victim = User::new(&mut proxy, "victim").await;
    let mut attacker = User::new(&mut proxy, "attacker").await;
    let attacks = attacks();
    assert!(attacks.len() >= 200, "{}", attacks.len());
    for (attack, bytes) in attacks {
        let as_victim = count_request(&victim.session, b"x-forwarded-user: victim\r\n", u32::MAX);
        let as_attacker =
            count_request(&attacker.session, b"x-forwarded-user: attacker\r\n", u32::MAX);
        let bytes = [bytes, as_victim, as_attacker, LAST.to_vec()].concat();
        exchange(&attacker.address, &bytes).await;
        let attack = format!("{kind:?}: {attack}");
        // The victim's request goes over the connection that the attack used, if it was kept.
        victim.expect_untouched(&attack).await;
        attacker.expect_forwarded(&mut proxy, &attack).await;
    }
}

/// R171: behind nginx, the gateway runs as a user only requests that nginx forwarded for that user.
#[tokio::test]
async fn nginx_forwards_every_request_that_runs() {
    expect_no_smuggling(ProxyKind::Nginx).await;
    expect_no_smuggling(ProxyKind::LenientNginx).await;
}

/// R171: so it does behind HAProxy.
#[tokio::test]
async fn haproxy_forwards_every_request_that_runs() {
    expect_no_smuggling(ProxyKind::Haproxy).await;
    expect_no_smuggling(ProxyKind::LenientHaproxy).await;
}

/// R171: a client does not become another user by headers that its proxy overlooks.
#[tokio::test]
async fn client_behind_a_proxy_cannot_name_its_user() {
    if peers::are_left_out() {
        return;
    }
    for kind in ProxyKind::ALL {
        let (_gateway, mut proxy) = start(kind).await;
        let mut victim = User::new(&mut proxy, "victim").await;
        let mut attacker = User::new(&mut proxy, "attacker").await;
        for (attack, headers) in NAMES {
            for session in [&victim.session, &attacker.session] {
                let request = count_request(session, headers, u32::MAX);
                exchange(&attacker.address, &[&request[..], LAST].concat()).await;
            }
            let attack = format!("{kind:?}: {attack}");
            victim.expect_untouched(&attack).await;
            attacker.expect_forwarded(&mut proxy, &attack).await;
        }
    }
}

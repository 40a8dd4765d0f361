//! Attacks on the boundary between requests: if a proxy sees another boundary, one client could send requests in the
//! name of another. The tests use only sockets, so the tables hold for any implementation of HTTP/1.1.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[path = "framing_attacks/behind_proxies.rs"]
mod behind_proxies;
#[path = "framing_attacks/cases.rs"]
mod cases;
mod support;

use cases::{AMBIGUOUS_HEADERS, BROKEN_CHUNKS, BROKEN_LINES, EMPTY_CHUNKS, ODDITIES, TARGETS};
use serde_json::{Value, json};
use support::{Gateway, LONG, mark, stdio};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Last request of a connection that is still open.
const LAST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// Response of the gateway.
#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: String,
}

/// Client with a counter, whose requests the attacker tries to smuggle.
struct Victim<'a> {
    gateway: &'a Gateway,
    /// User in `X-Forwarded-User`, if the gateway trusts a proxy.
    user: Option<&'static str>,
    session: String,
    /// Calls of the counter so far.
    counted: u32,
}

impl<'a> Victim<'a> {
    async fn new(gateway: &'a Gateway, user: Option<&'static str>) -> Self {
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "victim", "version": "1" } });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello });
        let headers: Vec<_> = user.iter().map(|user| ("x-forwarded-user", *user)).collect();
        let answer = gateway.post("test", &headers, &body.to_string()).await;
        assert_eq!(answer.status, 200);
        let session = answer.header("mcp-session-id").to_owned();
        let mut victim = Self { gateway, user, session, counted: 0 };
        victim.expect_untouched("nothing").await;
        victim
    }

    /// Returns a complete request that counts.
    fn request(&self) -> Vec<u8> {
        let user = self.user.map(|user| format!("x-forwarded-user: {user}\r\n"));
        count_request(&self.session, user.unwrap_or_default().as_bytes(), 1)
    }

    /// Counts once, and so checks that no other request did.
    async fn expect_untouched(&mut self, attack: &str) {
        self.counted += 1;
        let responses = exchange(self.gateway, &[&self.request(), LAST].concat()).await;
        let body: Value = serde_json::from_str(&responses[0].body).unwrap();
        let text = &body["result"]["content"][0]["text"];
        assert_eq!(*text, self.counted.to_string(), "{attack}: a smuggled request ran");
    }
}

/// Returns a complete request that counts, with these header lines.
fn count_request(session: &str, more: &[u8], id: u32) -> Vec<u8> {
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": "count", "arguments": {} } });
    let body = body.to_string();
    let head = format!(
        "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: \
         application/json\r\nmcp-session-id: {session}\r\n"
    );
    let rest = format!("content-length: {}\r\n\r\n{body}", body.len());
    [head.as_bytes(), more, rest.as_bytes()].concat()
}

/// Sends these bytes and returns all responses until the gateway closes the connection.
async fn exchange(gateway: &Gateway, bytes: &[u8]) -> Vec<Response> {
    let mut socket = gateway.socket().await;
    socket.write_all(bytes).await.unwrap();
    rest(&mut socket).await
}

/// Returns all responses until the gateway closes the connection.
async fn rest(socket: &mut TcpStream) -> Vec<Response> {
    let mut said = Vec::new();
    let read = tokio::time::timeout(LONG, socket.read_to_end(&mut said)).await;
    let shown = String::from_utf8_lossy(&said).into_owned();
    read.unwrap_or_else(|_| panic!("the connection stays open after {shown}")).unwrap();
    responses(&shown)
}

fn responses(mut said: &str) -> Vec<Response> {
    let mut all = Vec::new();
    while !said.is_empty() {
        let (head, behind) = said.split_once("\r\n\r\n").unwrap();
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no response: {said}"));
        let mut lines = head.split("\r\n");
        let length = lines.find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse().ok())?
        });
        let (body, behind) = behind.split_at(length.unwrap_or(0));
        if status != 100 {
            all.push(Response { status, head: head.to_owned(), body: body.to_owned() });
        }
        said = behind;
    }
    all
}

/// Returns the attacker's request up to its framing headers.
fn attacker(user: Option<&str>) -> Vec<u8> {
    let user = user.map(|user| format!("x-forwarded-user: {user}\r\n")).unwrap_or_default();
    format!("POST /mcp/test HTTP/1.1\r\nhost: localhost\r\n{user}").into_bytes()
}

/// Sends an attack followed by a request of the victim. Expects exactly one response.
async fn expect_refusal(victim: &mut Victim<'_>, attack: &str, parts: &[&[u8]]) {
    let bytes = [&parts.concat()[..], &victim.request(), LAST].concat();
    let all = exchange(victim.gateway, &bytes).await;
    assert_eq!(all.len(), 1, "{attack}: {all:?}");
    assert_eq!(all[0].status, 400, "{attack}: {all:?}");
    assert!(all[0].head.contains("\r\nconnection: close"), "{attack}: {all:?}");
    victim.expect_untouched(attack).await;
}

/// R171: a body that cannot be parsed ends the connection.
#[tokio::test]
async fn broken_chunk_closes_the_connection() {
    let gateway = Gateway::start(json!({ "test": stdio(&mark("broken-chunk"), &[]) })).await;
    let mut victim = Victim::new(&gateway, None).await;
    for (attack, body) in BROKEN_CHUNKS {
        let framing = b"transfer-encoding: chunked\r\n\r\n";
        expect_refusal(&mut victim, attack, &[&attacker(None), framing, body]).await;
    }
}

/// R171: so does a broken chunk long after the head, with the smuggled request later still.
#[tokio::test]
async fn broken_chunk_that_comes_late_closes_the_connection() {
    let gateway = Gateway::start(json!({ "test": stdio(&mark("late-chunk"), &[]) })).await;
    let mut victim = Victim::new(&gateway, None).await;
    for (attack, body) in BROKEN_CHUNKS {
        let mut socket = gateway.socket().await;
        let framing = b"expect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n";
        socket.write_all(&[&attacker(None), &framing[..]].concat()).await.unwrap();
        // The gateway reads the body from here on.
        let mut go_on = [0; 25];
        tokio::time::timeout(LONG, socket.read_exact(&mut go_on)).await.unwrap().unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        for byte in body.iter().chain(&victim.request()) {
            // The gateway may refuse it before its end.
            if socket.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
        let all = rest(&mut socket).await;
        assert_eq!(all.iter().map(|it| it.status).collect::<Vec<_>>(), [400], "{attack}: {all:?}");
        victim.expect_untouched(attack).await;
    }
}

/// R171: behind a proxy that forwards bodies unchanged, no client runs a request as another user.
#[tokio::test]
async fn broken_chunk_runs_nothing_as_another_user() {
    let proxy = json!({ "header": "X-Forwarded-User", "from": ["127.0.0.0/8"] });
    let servers = json!({ "test": stdio(&mark("chunk-proxy"), &[]) });
    let gateway = Gateway::with(servers, json!({ "auth": { "proxy": proxy } })).await;
    let mut victim = Victim::new(&gateway, Some("victim")).await;
    for (attack, body) in BROKEN_CHUNKS {
        let framing = b"transfer-encoding: chunked\r\n\r\n";
        let attacker = attacker(Some("attacker"));
        expect_refusal(&mut victim, attack, &[&attacker, framing, body]).await;
        // An unauthenticated request is refused before its body is read.
        let bytes = [&self::attacker(None)[..], framing, body, &victim.request(), LAST].concat();
        let all = exchange(&gateway, &bytes).await;
        assert_eq!(all.iter().map(|it| it.status).collect::<Vec<_>>(), [401], "{attack}: {all:?}");
        victim.expect_untouched(attack).await;
    }
}

/// R171: an ambiguous head ends the connection.
#[tokio::test]
async fn ambiguous_head_closes_the_connection() {
    let gateway = Gateway::start(json!({ "test": stdio(&mark("ambiguous-head"), &[]) })).await;
    let mut victim = Victim::new(&gateway, None).await;
    for (attack, framing) in AMBIGUOUS_HEADERS {
        let parts = [&attacker(None)[..], framing, b"\r\n", EMPTY_CHUNKS];
        expect_refusal(&mut victim, attack, &parts).await;
    }
    for (attack, line) in BROKEN_LINES {
        let framing = b"host: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
        expect_refusal(&mut victim, attack, &[line, framing, EMPTY_CHUNKS]).await;
    }
}

/// R171: a request that is odd but not ambiguous is read to the end that every reader sees. The request behind it runs
/// once, as a request of its own.
#[tokio::test]
async fn odd_request_ends_where_every_reader_sees_its_end() {
    let gateway = Gateway::start(json!({ "test": stdio(&mark("odd-request"), &[]) })).await;
    let mut victim = Victim::new(&gateway, None).await;
    for (oddity, framing) in ODDITIES {
        let bytes = [&attacker(None)[..], framing, &victim.request(), LAST].concat();
        let all = exchange(&gateway, &bytes).await;
        let statuses: Vec<_> = all.iter().map(|it| it.status).collect();
        assert_eq!(statuses, [400, 200, 200], "{oddity}: {all:?}");
        victim.counted += 1;
        victim.expect_untouched(oddity).await;
    }
}

/// R171: an odd target changes nothing about the end of a request.
#[tokio::test]
async fn odd_target_does_not_move_the_end_of_a_request() {
    let gateway = Gateway::start(json!({ "test": stdio(&mark("odd-target"), &[]) })).await;
    let mut victim = Victim::new(&gateway, None).await;
    for (oddity, line, status) in TARGETS {
        let framing = b"host: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
        let bytes = [line, framing, EMPTY_CHUNKS, &victim.request(), LAST].concat();
        let all = exchange(&gateway, &bytes).await;
        let statuses: Vec<_> = all.iter().map(|it| it.status).collect();
        assert_eq!(statuses, [status, 200, 200], "{oddity}: {all:?}");
        victim.counted += 1;
        victim.expect_untouched(oddity).await;
    }
}

/// R171: the connection closes behind trailers. Their end is the one thing about which hyper is generous.
#[tokio::test]
async fn trailers_close_the_connection() {
    let gateway = Gateway::start(json!({ "test": stdio(&mark("trailers"), &[]) })).await;
    let mut victim = Victim::new(&gateway, None).await;
    let (head, body) = (victim.request(), b"0\r\nx: y\r\n\r\n");
    let head = String::from_utf8(head).unwrap();
    let (head, message) = head.split_once("\r\n\r\n").unwrap();
    let (head, length) = head.rsplit_once("\r\ncontent-length: ").unwrap();
    let length: usize = length.parse().unwrap();
    let chunks = format!("{head}\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{message}\r\n");
    let all =
        exchange(&gateway, &[chunks.as_bytes(), body, &victim.request(), LAST].concat()).await;
    assert_eq!(all.iter().map(|it| it.status).collect::<Vec<_>>(), [200], "{all:?}");
    assert!(all[0].head.contains("\r\nconnection: close"), "{all:?}");
    victim.counted += 1;
    victim.expect_untouched("trailers").await;
}

/// R171: a refusal says why, also if hyper refuses the head before the gateway sees it, and also behind a request
/// that was answered.
#[tokio::test]
async fn refused_head_is_answered_with_a_sentence() {
    let gateway = Gateway::start(json!({ "test": stdio(&mark("sentence"), &[]) })).await;
    let first = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let large = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(70_000));
    for before in ["", first] {
        for (status, bad, sentence) in [
            (400, "GET / HTTP/1.1\r\nx : y\r\n\r\n", "could be read in two ways"),
            (400, "GET / HTTP/1.1\nhost: localhost\r\n\r\n", "could be read in two ways"),
            (431, &large, "`limits.headers`"),
        ] {
            let mut all = Vec::new();
            let mut socket = gateway.socket().await;
            if !before.is_empty() {
                socket.write_all(before.as_bytes()).await.unwrap();
                let mut ok = [0; 15];
                tokio::time::timeout(LONG, socket.read_exact(&mut ok)).await.unwrap().unwrap();
                all.extend_from_slice(&ok);
            }
            socket.write_all(bad.as_bytes()).await.unwrap();
            let read = tokio::time::timeout(LONG, socket.read_to_end(&mut all)).await;
            read.unwrap().unwrap();
            let all = responses(&String::from_utf8(all).unwrap());
            let last = all.last().unwrap();
            assert_eq!((all.len(), last.status), (1 + usize::from(!before.is_empty()), status));
            let body: Value = serde_json::from_str(&last.body).unwrap();
            assert!(body["error"]["message"].as_str().unwrap().contains(sentence), "{body}");
        }
    }
}

/// R171: an unwanted body is read to its end, or the connection closes. It is never read as a request.
#[tokio::test]
async fn unwanted_body_is_not_read_as_a_request() {
    let servers = json!({ "test": stdio(&mark("unwanted-body"), &[]) });
    let gateway = Gateway::with(servers, json!({ "limits": { "body": 1024 } })).await;
    let mut victim = Victim::new(&gateway, None).await;
    let no_accept = format!(
        "GET /mcp/test HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {}\r\n",
        victim.session
    );
    for (status, head) in [
        (400, "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\n"),
        (404, "POST /nowhere HTTP/1.1\r\nhost: localhost\r\n"),
        (405, "PUT /mcp/test HTTP/1.1\r\nhost: localhost\r\n"),
        (403, "POST /mcp/test HTTP/1.1\r\nhost: example.com\r\n"),
        (406, &no_accept),
        (200, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n"),
        (405, "OPTIONS /mcp/test HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"),
    ] {
        // Larger than `limits.body`, than twice that, and than the limit for discarding an unwanted body.
        for (size, too_large) in [(600, false), (1_500, true), (4_000, true), (200_000, true)] {
            let mut body = vec![b'\n'; size];
            let request = victim.request();
            let at = size - request.len();
            body[at..].copy_from_slice(&request);
            let status = if status == 400 && too_large { 413 } else { status };
            let chunks = [format!("{size:x}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
            for (framing, body) in [
                (format!("content-length: {size}\r\n\r\n"), &body),
                ("transfer-encoding: chunked\r\n\r\n".to_owned(), &chunks),
            ] {
                let attack = format!("{head}{framing} with {size} bytes");
                let mut socket = gateway.socket().await;
                let bytes = [head.as_bytes(), framing.as_bytes(), body, LAST].concat();
                // The gateway may refuse it before its end.
                let _ = socket.write_all(&bytes).await;
                let all = rest(&mut socket).await;
                assert_eq!(all[0].status, status, "{attack}: {all:?}");
                assert!(all.len() <= 2, "{attack}: {all:?}");
                assert!(all.iter().skip(1).all(|it| it.body == "ok\n"), "{attack}: {all:?}");
                victim.expect_untouched(&attack).await;
            }
        }
    }
}

/// R170: a client that is refused while it waits for `100 Continue`, or after it sent nothing for too long, cannot
/// send a request in place of the rest of the body.
#[tokio::test]
async fn rest_of_a_refused_body_is_not_read_as_a_request() {
    let servers = json!({ "test": stdio(&mark("rest-of-body"), &[]) });
    let gateway = Gateway::with(servers, json!({ "limits": { "stall": "1s" } })).await;
    let mut victim = Victim::new(&gateway, None).await;
    for (status, begin) in [
        (
            404,
            "POST /nowhere HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n",
        ),
        (
            404,
            "POST /nowhere HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
        (408, "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{"),
        (
            408,
            "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\n",
        ),
        (
            408,
            "POST /mcp/test HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n",
        ),
    ] {
        let mut socket = gateway.socket().await;
        socket.write_all(begin.as_bytes()).await.unwrap();
        let mut first = [0; 12];
        tokio::time::timeout(LONG, socket.read_exact(&mut first)).await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&first), format!("HTTP/1.1 {status}"), "{begin}");
        let _ = socket.write_all(&[&victim.request()[..], LAST].concat()).await;
        let mut said = Vec::new();
        tokio::time::timeout(LONG, socket.read_to_end(&mut said)).await.unwrap().unwrap();
        let all = responses(&format!("HTTP/1.1 {status}{}", String::from_utf8_lossy(&said)));
        assert_eq!(all.len(), 1, "{begin}: {all:?}");
        assert!(all[0].head.contains("\r\nconnection: close"), "{begin}: {all:?}");
        victim.expect_untouched(begin).await;
    }
}

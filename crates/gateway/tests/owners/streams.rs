//! Open streams end when their client loses access: its token is removed or expires, or its server is withdrawn.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use stayput_testkit::{mcp::Events, processes, program};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};

use super::{
    Somebody,
    identity::modern,
    issuer::{Issuer, Signer},
    jwt::{AUDIENCE, but, claims, now},
    support::{Gateway, LONG, gone, mark, stdio, until},
    token,
};

/// Longest time that a stream may outlive the access of its client.
const SOON: Duration = Duration::from_secs(1);

/// Resource whose changes the test servers report.
const RESOURCE: &str = "test://count";

/// Kinds of streams that a client can have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// GET stream of a legacy client.
    Get,
    /// Answer to a call of a legacy client.
    Post,
    /// Answer to a call of a legacy client on the path of all servers.
    PostToAll,
    /// Stream of 2024-11-05.
    Sse,
    /// `subscriptions/listen` of a modern client.
    Listen,
    /// Answer to a call of a modern client.
    Call,
}

const KINDS: [Kind; 6] =
    [Kind::Get, Kind::Post, Kind::PostToAll, Kind::Sse, Kind::Listen, Kind::Call];

/// Open stream.
struct Open {
    kind: Kind,
    events: Events,
    /// Client with the headers of its connection.
    who: Somebody,
    /// URL that the client posts to.
    url: String,
    /// Time just before the stream was requested.
    begun: Instant,
}

/// Parameters of a call that reports progress ten times a second and does not end.
fn slow(tool: &str) -> Value {
    json!({ "name": tool, "arguments": { "ms": 600_000, "steps": 6_000 },
        "_meta": { "progressToken": "p" } })
}

fn legacy(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// Returns the client with the headers of a modern request, and its body.
fn asking(who: &Somebody, method: &str, params: Value) -> (Somebody, String) {
    let token = params["_meta"]["progressToken"].clone();
    let (headers, body) = modern(method, params);
    let mut body: Value = serde_json::from_str(&body).unwrap();
    if !token.is_null() {
        body["params"]["_meta"]["progressToken"] = token;
    }
    let who = headers.iter().fold(who.and("x-n", "1"), |it, (name, value)| it.and(name, value));
    (who, body.to_string())
}

async fn next(events: &mut Events) -> Value {
    tokio::time::timeout(LONG, events.message()).await.unwrap().expect("the stream goes on")
}

impl Open {
    /// Opens a stream of this kind as `who`, on a connection that `first` of the same owner opens.
    async fn new(kind: Kind, gateway: &Gateway, (first, who): (&Somebody, &Somebody)) -> Self {
        let url = match kind {
            Kind::Get | Kind::Post => gateway.at("old"),
            Kind::PostToAll => gateway.at(""),
            Kind::Sse => format!("{}/sse/old", gateway.url),
            Kind::Listen | Kind::Call => gateway.at("new"),
        };
        let mut on = who.and("x-n", "2");
        if matches!(kind, Kind::Get | Kind::Post | Kind::PostToAll) {
            let connection = first.connect(&url).await;
            let tool = if kind == Kind::PostToAll { "old__count" } else { "count" };
            assert_eq!(first.text(&url, &connection, tool).await, "1");
            on = who.and("mcp-session-id", &connection);
        }
        if kind == Kind::Get {
            let body = legacy("resources/subscribe", &json!({ "uri": RESOURCE }));
            assert_eq!(on.ask(Method::POST, &url, &body).await.status, 200);
        }
        let begun = Instant::now();
        let interest = json!({ "notifications": { "resourceSubscriptions": [RESOURCE] } });
        let answer = match kind {
            Kind::Get | Kind::Sse => on.ask(Method::GET, &url, "").await,
            Kind::Post => on.ask(Method::POST, &url, &legacy("tools/call", &slow("slow"))).await,
            Kind::PostToAll => {
                on.ask(Method::POST, &url, &legacy("tools/call", &slow("old__slow"))).await
            }
            Kind::Listen => {
                let (on, body) = asking(who, "subscriptions/listen", interest);
                on.ask(Method::POST, &url, &body).await
            }
            Kind::Call => {
                let (on, body) = asking(who, "tools/call", slow("slow"));
                on.ask(Method::POST, &url, &body).await
            }
        };
        assert_eq!(answer.status, 200, "{kind:?}");
        assert_eq!(answer.header("content-type"), "text/event-stream", "{kind:?}");
        let mut open = Self { kind, events: answer.events(), who: on, url, begun };
        // First event: an event id to resume from, the address to post to, or the first message.
        let first = tokio::time::timeout(LONG, open.events.next()).await.unwrap().unwrap();
        if kind == Kind::Sse {
            let endpoint = String::from_utf8(first.data().to_vec()).unwrap();
            open.url = format!("{}{endpoint}", gateway.url);
        }
        open
    }

    /// Opens one stream of each kind.
    async fn each(gateway: &Gateway, who: (&Somebody, &Somebody)) -> Vec<Self> {
        join_all(KINDS.map(|kind| Self::new(kind, gateway, who))).await
    }

    /// Reads to the end and returns the time of it.
    async fn end(&mut self) -> Instant {
        while self.events.next().await.is_some() {}
        Instant::now()
    }

    /// Asserts that the stream receives a message that is sent after now.
    async fn goes_on(&mut self) {
        let (notify, ping) = (json!({ "name": "notify", "arguments": {} }), json!({}));
        let (who, body, status) = match self.kind {
            Kind::Get => (self.who.and("x-n", "3"), legacy("tools/call", &notify), 200),
            Kind::Sse => (self.who.and("x-n", "3"), legacy("ping", &ping), 202),
            Kind::Listen => {
                let (who, body) = asking(&self.who, "tools/call", notify);
                (who, body, 200)
            }
            Kind::Post | Kind::PostToAll | Kind::Call => {
                // No step begins before its time, so the next one is sent after now.
                let steps = self.begun.elapsed().as_millis() / 100 + 1;
                while next(&mut self.events).await["params"]["progress"].as_u64().unwrap_or(0)
                    < u64::try_from(steps).unwrap()
                {}
                return;
            }
        };
        assert_eq!(who.ask(Method::POST, &self.url, &body).await.status, status, "{:?}", self.kind);
        loop {
            let told = next(&mut self.events).await;
            if told["method"] == "notifications/resources/updated" || told["result"].is_object() {
                return;
            }
        }
    }
}

/// Returns two servers, one of each era.
fn servers(mark: &str) -> Value {
    let args = ["stdio", "--era", "modern", "--mark", mark];
    json!({ "old": stdio(mark, &[]),
        "new": { "command": program("stayput-testserver"), "args": args } })
}

/// Changes the configuration. Returns the time at which the gateway logged that the new one applies.
async fn reconfigure(gateway: &Gateway, change: impl FnOnce(&mut Value)) -> Instant {
    let reloads = || gateway.log().matches("read anew and holds").count();
    let before = reloads();
    let mut all: Value = serde_json::from_str(&gateway.configuration()).unwrap();
    change(&mut all);
    gateway.write(&all.to_string());
    gateway.hang_up();
    until("reload", || reloads() > before).await;
    Instant::now()
}

/// Asserts that all of these end soon after `lost`.
async fn all_end(streams: &mut [Open], lost: Instant) {
    let ends = streams.iter_mut().map(|it| async {
        let ended = tokio::time::timeout_at(lost + SOON, it.end()).await;
        (it.kind, ended.ok())
    });
    let ends = join_all(ends).await;
    let open: Vec<_> = ends.iter().filter(|(_, ended)| ended.is_none()).collect();
    assert!(open.is_empty(), "still open: {open:?}");
}

async fn all_go_on(streams: &mut [Open]) {
    join_all(streams.iter_mut().map(Open::goes_on)).await;
}

/// Waits until the modern server has received this number of cancellations.
async fn cancelled(gateway: &Gateway, who: &Somebody, times: u64) {
    for _ in 0..1_500 {
        let (who, body) = asking(who, "tools/call", json!({ "name": "stats", "arguments": {} }));
        let answer = who.ask(Method::POST, &gateway.at("new"), &body).await.message().await;
        let text = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        let stats: Value = serde_json::from_str(&text).unwrap();
        if stats["cancels"].as_u64().unwrap_or(0) >= times {
            assert_eq!(stats["cancels"], times, "{stats}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not {times} calls were cancelled");
}

/// Returns Ann, Bob, and their configuration.
fn two() -> (Somebody, Somebody, Value) {
    let ((ann, anns), (bob, bobs)) = (token("ann"), token("bob"));
    let tokens = json!({ "ann": anns, "bob": bobs });
    let auth = json!({ "auth": { "tokens": tokens, "metrics": "authenticated" } });
    (Somebody::bearer(&ann), Somebody::bearer(&bob), auth)
}

/// Ann's streams end with her token, and the calls of her modern client are cancelled. Bob's streams continue.
#[tokio::test]
async fn removing_a_token_ends_its_streams() {
    let mark = mark("streams-token");
    let (ann, bob, auth) = two();
    let gateway = Gateway::with(servers(&mark), auth).await;
    let mut anns = Open::each(&gateway, (&ann, &ann)).await;
    let mut bobs = Open::each(&gateway, (&bob, &bob)).await;
    let lost = reconfigure(&gateway, |all| {
        all["stayput"]["auth"]["tokens"].as_object_mut().unwrap().remove("ann").unwrap();
    })
    .await;
    all_end(&mut anns, lost).await;
    all_go_on(&mut bobs).await;
    for open in &anns {
        let answer = ann.ask(Method::GET, &open.url, "").await;
        assert_eq!(answer.status, 401, "{:?}", open.kind);
    }
    cancelled(&gateway, &bob, 2).await;
    drop(gateway);
    gone(&mark).await;
}

/// A request is authenticated again when its body is there: the token was removed since the head was read.
#[tokio::test]
async fn body_that_comes_after_its_token_was_removed_is_refused() {
    let mark = mark("streams-body");
    let ((ann, hash), (_, bobs)) = (token("ann"), token("bob"));
    let auth = json!({ "auth": { "tokens": { "ann": hash, "bob": bobs } } });
    let gateway = Gateway::with(servers(&mark), auth).await;
    let host = gateway.url.trim_start_matches("http://").to_owned();
    let body = legacy("ping", &json!({}));
    let head = format!(
        "POST /mcp/old HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {ann}\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut socket = TcpStream::connect(&host).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    // The gateway has authenticated the head when it asks for the body.
    let mut interim = [0; 25];
    socket.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    reconfigure(&gateway, |all| {
        all["stayput"]["auth"]["tokens"].as_object_mut().unwrap().remove("ann").unwrap();
    })
    .await;
    socket.write_all(body.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    socket.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 401");
    drop(gateway);
    gone(&mark).await;
}

/// If a server is withdrawn from Ann, her streams of it end, also on the path of all servers. To her it is like an
/// unknown server. Bob's streams continue.
#[tokio::test]
async fn withdrawing_a_server_ends_its_streams() {
    let mark = mark("streams-for");
    let (ann, bob, auth) = two();
    let gateway = Gateway::with(servers(&mark), auth).await;
    let mut anns = Open::each(&gateway, (&ann, &ann)).await;
    let mut bobs = Open::each(&gateway, (&bob, &bob)).await;
    let lost = reconfigure(&gateway, |all| {
        for name in ["old", "new"] {
            all["mcpServers"][name]["stayput"] = json!({ "for": { "sub": "bob" } });
        }
    })
    .await;
    all_end(&mut anns, lost).await;
    all_go_on(&mut bobs).await;
    for open in anns.iter().filter(|it| it.kind != Kind::PostToAll) {
        let answer = ann.ask(Method::GET, &open.url, "").await;
        assert_eq!(answer.status, 404, "{:?}", open.kind);
    }
    // Messages that the server sent meanwhile cannot be resumed either: the request opens a new stream.
    let all = anns.iter().find(|it| it.kind == Kind::PostToAll).unwrap();
    let last = all.events.last_id().unwrap();
    let answer = all.who.and("last-event-id", last).ask(Method::GET, &all.url, "").await;
    assert_eq!(answer.status, 200);
    let mut events = answer.events();
    assert_eq!(all.who.ask(Method::DELETE, &all.url, "").await.status, 200);
    assert_eq!(tokio::time::timeout(LONG, events.message()).await.unwrap(), None);
    cancelled(&gateway, &bob, 2).await;
    drop(gateway);
    gone(&mark).await;
}

/// Converts seconds since 1970 to an instant.
#[allow(clippy::disallowed_methods, reason = "tokens are of now")]
fn moment(seconds: u64) -> Instant {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Instant::now() + Duration::from_secs(seconds).saturating_sub(passed)
}

/// Streams end when the token expires with which they were opened: at the end of its leeway, neither earlier nor
/// later. A call of a legacy client continues, and a new token of the same owner can resume its stream.
#[tokio::test]
async fn expiry_of_a_token_ends_its_streams() {
    const LEEWAY: u64 = 2;
    let (mark, signer) = (mark("streams-expiry"), Signer::new("one"));
    let issuer = Issuer::start(&[&signer]).await;
    let jwt = json!({ "issuer": issuer.url, "leeway": LEEWAY });
    let settings = json!({ "public_url": AUDIENCE, "auth": { "jwt": jwt } });
    let gateway = Gateway::with(servers(&mark), settings).await;
    let bearer = |claims: &Value| Somebody::bearer(&signer.signed(&signer.head(), claims));
    let (ann, bob) = (bearer(&claims(&issuer, "ann")), bearer(&claims(&issuer, "bob")));
    // The servers run before the clock starts to matter.
    let mut bobs = Open::each(&gateway, (&bob, &bob)).await;
    let end = now() + 6;
    let short = bearer(&but(claims(&issuer, "ann"), "exp", json!(end)));
    let mut anns = Open::each(&gateway, (&ann, &short)).await;
    let lost = moment(end + LEEWAY);
    // The token is accepted until then. The clocks of the test and of the gateway may differ by parts of a
    // millisecond.
    let early = lost - Duration::from_millis(5);
    let first = futures_util::future::select_all(anns.iter_mut().map(|it| Box::pin(it.end())));
    assert!(tokio::time::timeout_at(early, first).await.is_err(), "one ended early");
    all_end(&mut anns, lost).await;
    all_go_on(&mut bobs).await;
    cancelled(&gateway, &bob, 2).await;
    for open in anns {
        let answer = short.ask(Method::GET, &open.url, "").await;
        assert_eq!(answer.status, 401, "{:?}", open.kind);
        if matches!(open.kind, Kind::Post | Kind::PostToAll) {
            let connection = &open.who.headers.last().unwrap().1;
            let who = ann.and("mcp-session-id", connection);
            let who = who.and("last-event-id", open.events.last_id().unwrap());
            let mut again =
                Open { events: who.ask(Method::GET, &open.url, "").await.events(), who, ..open };
            again.goes_on().await;
        }
    }
    drop(gateway);
    gone(&mark).await;
}

/// The gateway does not wait for a client that does not read: its session ends.
#[tokio::test]
async fn unread_stream_ends_too() {
    let mark = mark("streams-unread");
    let (ann, _, auth) = two();
    let gateway = Gateway::with(json!({ "old": stdio(&mark, &[]) }), auth).await;
    let mut unread = Open::new(Kind::Sse, &gateway, (&ann, &ann)).await;
    let hello = json!({ "protocolVersion": "2024-11-05", "capabilities": {},
        "clientInfo": { "name": "old", "version": "1" } });
    let big = json!({ "name": "big", "arguments": { "bytes": 1 << 20 } });
    let url = unread.url.clone();
    let post = async |body: String| {
        assert_eq!(ann.ask(Method::POST, &url, &body).await.status, 202);
    };
    post(legacy("initialize", &hello)).await;
    assert!(next(&mut unread.events).await["result"].is_object());
    // More than the sockets and the stream itself can buffer.
    for id in 2..34 {
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": big });
        post(call.to_string()).await;
    }
    // Once no more calls are answered, the answers wait to be read. If this check is too early, the test only covers
    // less.
    let answered = async || {
        let answer = ann.ask(Method::GET, &format!("{}/metrics", gateway.url), "").await;
        let page = String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap();
        let sample = r#"stayput_call_seconds_count{server="old"} "#;
        page.lines().find_map(|line| line.strip_prefix(sample)?.parse::<u64>().ok()).unwrap_or(0)
    };
    let mut before = 0;
    while before == 0 || before != answered().await {
        before = answered().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(processes::with_token(&mark).len(), 1);
    let lost = reconfigure(&gateway, |all| {
        let (_, hash) = token("bob");
        all["stayput"]["auth"]["tokens"] = json!({ "bob": hash });
    })
    .await;
    // The process gets a moment to end. Without the token change an unread stream would end after half a minute.
    let ended = tokio::time::timeout_at(lost + 5 * SOON, gone(&mark)).await;
    assert!(ended.is_ok(), "it still runs");
    drop(unread);
}

/// A server that is withdrawn from Bob sends him nothing more on the path of all servers. Messages of the other
/// servers still arrive.
#[tokio::test]
async fn withdrawn_server_sends_nothing_on_the_path_of_all_servers() {
    let mark = mark("streams-all");
    let (ann, bob, auth) = two();
    let shared = |identity: Value| {
        let mut server = stdio(&mark, &[]);
        server["stayput"] = json!({ "isolation": "shared", "for": identity });
        server
    };
    let both = json!({ "sub": ["ann", "bob"] });
    let servers = json!({ "open": shared(both.clone()), "ops": shared(both) });
    let gateway = Gateway::with(servers, auth).await;
    let all = gateway.at("");
    let anns = ann.connect(&all).await;
    let bobs = bob.connect(&all).await;
    for tool in ["open__count", "ops__count"] {
        bob.text(&all, &bobs, tool).await;
    }
    let on = bob.and("mcp-session-id", &bobs);
    let mut events = on.ask(Method::GET, &all, "").await.events();
    tokio::time::timeout(LONG, events.next()).await.unwrap().unwrap();
    let changed = async |events: &mut Events, times: usize| {
        let mut heard = 0;
        while heard < times {
            heard +=
                usize::from(next(events).await["method"] == "notifications/tools/list_changed");
        }
    };
    ann.text(&all, &anns, "ops__notify").await;
    changed(&mut events, 1).await;
    reconfigure(&gateway, |all| {
        all["mcpServers"]["ops"]["stayput"]["for"] = json!({ "sub": "ann" });
    })
    .await;
    // The notification that there are fewer tools now.
    changed(&mut events, 1).await;
    ann.text(&all, &anns, "ops__notify").await;
    ann.text(&all, &anns, "ops__notify").await;
    ann.text(&all, &anns, "open__notify").await;
    changed(&mut events, 1).await;
    assert_eq!(on.ask(Method::DELETE, &all, "").await.status, 200);
    let mut more = Vec::new();
    while let Some(told) = tokio::time::timeout(LONG, events.message()).await.unwrap() {
        more.push(told);
    }
    assert!(!json!(more).to_string().contains("tools/list_changed"), "{more:?}");
    drop(gateway);
    gone(&mark).await;
}

//! Attacks of Bob on Ann's session: nothing he knows gives him access.

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::Answer;

use super::{
    Somebody,
    support::{Gateway, LONG, gone, mark, stdio},
    token,
};

/// Returns status and body for comparison.
async fn shape(answer: Answer) -> (u16, String) {
    let status = answer.status.as_u16();
    let body = tokio::time::timeout(LONG, answer.bytes()).await.unwrap().unwrap();
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn call(arguments: &Value, meta: &Value) -> String {
    let params = json!({ "name": "count", "arguments": arguments, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
}

/// E30, E31: Ann's connection, event id, handle and key are unknown to Bob, on every method.
#[tokio::test]
async fn session_of_ann_is_unknown_to_bob() {
    let mark = mark("hijack");
    let ((ann, anns), (bob, bobs)) = (token("ann"), token("bob"));
    let auth = json!({ "tokens": { "ann": anns, "bob": bobs } });
    let mut server = stdio(&mark, &[]);
    server["stayput"] = json!({ "handles": "always" });
    let servers = json!({ "test": server });
    let gateway = Gateway::with(servers, json!({ "auth": auth, "session_tools": "all" })).await;
    let (url, ann, bob) = (gateway.at("test"), Somebody::bearer(&ann), Somebody::bearer(&bob));
    let connection = ann.connect(&url).await;
    assert_eq!(ann.text(&url, &connection, "count").await, "1");
    let unknown = bob.connect(&url).await;
    assert_eq!(bob.and("mcp-session-id", &unknown).ask(Method::DELETE, &url, "").await.status, 200);
    // By the id of the connection, and by that together with an event id.
    for method in [Method::POST, Method::GET, Method::DELETE] {
        let body =
            if method == Method::POST { call(&json!({}), &json!({})) } else { String::new() };
        let tried = bob.and("mcp-session-id", &connection).and("last-event-id", "AAAA");
        let nothing = bob.and("mcp-session-id", &unknown).and("last-event-id", "AAAA");
        let tried = shape(tried.ask(method.clone(), &url, &body).await).await;
        let nothing = shape(nothing.ask(method.clone(), &url, &body).await).await;
        assert_eq!(tried, nothing, "{method}");
        assert_eq!(tried.0, 404, "{method}");
    }
    // By her handle, from every name source.
    let handle = anns_handle(&ann, &url, &connection).await;
    let own = bob.connect(&url).await;
    let never: String = handle.chars().rev().take(8).collect();
    let never = &*format!("{}{never}", &handle[..handle.len() - 8]);
    let on_own = bob.and("mcp-session-id", &own);
    for said in ["argument", "meta", "header"] {
        let mut answers = Vec::new();
        for name in [&*handle, never] {
            let (mut arguments, mut meta, mut from) =
                (json!({}), json!({}), on_own.and("x-n", "1"));
            match said {
                "argument" => arguments["session_id"] = json!(name),
                "meta" => meta["dev.stayput/session"] = json!(name),
                _ => from = on_own.and("stayput-session", name),
            }
            let (status, body) =
                shape(from.ask(Method::POST, &url, &call(&arguments, &meta)).await).await;
            answers.push((status, body.replace(name, "NAME")));
        }
        assert_eq!(answers[0], answers[1], "{said}");
        assert!(!answers[0].1.contains("\"text\":\"2\""), "{said}: {}", answers[0].1);
    }
    // With the same key, each owner has a separate session.
    for (who, expected) in [(&ann, "1"), (&bob, "1"), (&ann, "2")] {
        let path = format!("{url}/~shared");
        let on = who.connect(&path).await;
        assert_eq!(who.text(&path, &on, "count").await, expected);
    }
    assert_eq!(ann.text(&url, &connection, "count").await, "2", "and nobody noticed anything");
    drop(gateway);
    gone(&mark).await;
}

/// Returns a handle of the session of Ann's connection.
async fn anns_handle(ann: &Somebody, url: &str, connection: &str) -> String {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "session_start", "arguments": {} } });
    let answer =
        ann.and("mcp-session-id", connection).ask(Method::POST, url, &body.to_string()).await;
    let message = tokio::time::timeout(LONG, answer.message()).await.unwrap();
    let handle = message["result"]["structuredContent"]["session_id"].as_str();
    handle.unwrap_or_else(|| panic!("{message}")).to_owned()
}

/// One attempt of Bob, with a secret of Ann or with one that never existed.
struct Attempt {
    what: String,
    who: Somebody,
    method: Method,
    url: String,
    body: String,
}

impl Attempt {
    fn new(what: &str, who: &Somebody, (method, url): (Method, &str), body: &str) -> Self {
        let (what, url, body) = (what.to_owned(), url.to_owned(), body.to_owned());
        Self { what, who: who.and("x-n", "1"), method, url, body }
    }
}

/// Secrets that lead to Ann's session, or copies that never existed.
struct Secrets {
    connection: String,
    event: String,
    handle: String,
    caller: String,
}

/// Returns a secret of the same form that was never issued.
fn never(secret: &str) -> String {
    // The prefix shows the kind of the secret, so it stays.
    let letter = |(at, c): (usize, char)| match c {
        '2'..='6' if at >= 3 => 'a',
        'a'..='y' | 'A'..='Y' if at >= 3 => char::from(u8::try_from(c).unwrap() + 1),
        c => c,
    };
    let made: String = secret.chars().enumerate().map(letter).collect();
    assert!(made != secret && made.len() == secret.len());
    made
}

impl Secrets {
    fn never(&self) -> Self {
        let Self { connection, event, handle, caller } = self;
        let (connection, event) = (never(connection), never(event));
        Self { connection, event, handle: never(handle), caller: never(caller) }
    }

    /// Returns an attempt for every way in and every method.
    fn attempts(&self, gateway: &Gateway, bob: &Somebody, own: &str) -> Vec<Attempt> {
        let mut all = self.of_the_connection(gateway, bob);
        all.extend(self.of_the_handle(gateway, &bob.and("mcp-session-id", own)));
        all.extend(self.of_the_modern_handle(gateway, bob));
        // URL to which a caller of the legacy SSE transport posts.
        for server in ["test", "other"] {
            let url = format!("{}/sse/{server}/messages?session={}", gateway.url, self.caller);
            for method in [Method::POST, Method::GET, Method::DELETE] {
                let body = call(&json!({}), &json!({}));
                all.push(Attempt::new("caller", bob, (method, &url), &body));
            }
        }
        all
    }

    /// Attempts with the connection, by header and by cookie, on its path and on others.
    fn of_the_connection(&self, gateway: &Gateway, bob: &Somebody) -> Vec<Attempt> {
        let (mut all, url) = (Vec::new(), gateway.at("test"));
        let cookie = format!("mcp_session_id={}", self.connection);
        let by_id = bob.and("mcp-session-id", &self.connection);
        for (what, who) in [
            ("connection and event", by_id.and("last-event-id", &self.event)),
            ("connection", by_id),
            ("cookie", bob.and("cookie", &cookie)),
        ] {
            for url in [&url, &gateway.at(""), &format!("{url}/~key")] {
                for method in [Method::GET, Method::DELETE, Method::PUT] {
                    all.push(Attempt::new(what, &who, (method, url), ""));
                }
                for body in bodies(&json!({}), &json!({})) {
                    all.push(Attempt::new(what, &who, (Method::POST, url), &body));
                }
            }
        }
        all
    }

    /// Attempts with the handle, from every name source, on a connection of Bob.
    fn of_the_handle(&self, gateway: &Gateway, on: &Somebody) -> Vec<Attempt> {
        let (mut all, url) = (Vec::new(), gateway.at("test"));
        let argument = json!({ "session_id": self.handle });
        for url in [&url, &format!("{url}/~{}", self.handle)] {
            for body in bodies(&argument, &json!({ "dev.stayput/session": self.handle })) {
                all.push(Attempt::new("handle", on, (Method::POST, url), &body));
                let said = on.and("stayput-session", &self.handle);
                all.push(Attempt::new("handle in a header", &said, (Method::POST, url), &body));
            }
        }
        all
    }

    /// Attempts with the handle of a modern client, which has no connection.
    fn of_the_modern_handle(&self, gateway: &Gateway, bob: &Somebody) -> Vec<Attempt> {
        let (mut all, url) = (Vec::new(), gateway.at("test"));
        let era = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "bob", "version": "7" },
        });
        let mut named = era.clone();
        named["dev.stayput/session"] = json!(self.handle);
        let argument = json!({ "session_id": self.handle });
        let who = |method: &str, name: &str| {
            let who = bob.and("mcp-protocol-version", "2026-07-28");
            who.and("mcp-method", method).and("mcp-name", name)
        };
        let body = |method: &str, params: Value| {
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
        };
        for url in [&url, &format!("{url}/~{}", self.handle)] {
            for tool in ["count", "session_info", "session_end", "session_start", "session_switch"]
            {
                let plain = who("tools/call", tool);
                let said = plain.and("stayput-session", &self.handle);
                for (what, who, arguments, meta) in [
                    ("modern argument", &plain, &argument, &era),
                    ("modern meta", &plain, &json!({}), &named),
                    ("modern header", &said, &json!({}), &era),
                ] {
                    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
                    let body = body("tools/call", params);
                    all.push(Attempt::new(what, who, (Method::POST, url), &body));
                }
            }
            let body = body("resources/read", json!({ "uri": "test://count", "_meta": named }));
            let who = who("resources/read", "test://count");
            all.push(Attempt::new("modern resource", &who, (Method::POST, url), &body));
        }
        all
    }
}

/// Returns messages of every kind that name a session by this argument and this `_meta`.
fn bodies(arguments: &Value, meta: &Value) -> Vec<String> {
    let request = |method: &str, mut params: Value| {
        params["_meta"] = meta.clone();
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    };
    let tool = |name: &str| request("tools/call", json!({ "name": name, "arguments": arguments }));
    let mut all: Vec<String> =
        ["count", "session_info", "session_end", "session_switch", "session_start"]
            .map(tool)
            .into();
    all.extend([
        request("resources/read", json!({ "uri": "test://count" })),
        request("prompts/get", json!({ "name": "greet" })),
        request("tools/list", json!({})),
        request("ping", json!({})),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } })
            .to_string(),
        json!({ "jsonrpc": "2.0", "id": 1, "result": {} }).to_string(),
        json!([{ "jsonrpc": "2.0", "id": 1, "method": "ping" }]).to_string(),
        "invalid_lines".to_owned(),
    ]);
    all
}

/// Returns the answer without the secret itself and without values that are new each time.
async fn seen(attempt: &Attempt, secrets: &Secrets) -> (u16, Vec<String>, String) {
    let Attempt { who, method, url, body, .. } = attempt;
    let answer = who.ask(method.clone(), url, body).await;
    let status = answer.status.as_u16();
    let kinds = ["content-type", "retry-after", "www-authenticate", "allow"];
    let kinds = kinds.map(|name| answer.header(name).to_owned()).into();
    // An open stream has no end to wait for.
    let text = if answer.header("content-type").starts_with("text/event-stream") {
        let mut events = answer.events();
        let first = tokio::time::timeout(LONG, events.next()).await.unwrap();
        first.map(|first| String::from_utf8_lossy(first.data()).into_owned()).unwrap_or_default()
    } else {
        shape(answer).await.1
    };
    let Secrets { connection, event, handle, caller } = secrets;
    let text =
        [connection, event, handle, caller].iter().fold(text, |text, it| text.replace(*it, "IT"));
    (status, kinds, super::identity::plain(&text))
}

/// E30, E31: the whole matrix. With any secret of Ann, anywhere, Bob gets the same answer as with one that never
/// existed. Ann's session is not affected.
#[tokio::test]
async fn foreign_session_is_unknown_everywhere() {
    let mark = mark("matrix");
    let ((ann, anns), (bob, bobs)) = (token("ann"), token("bob"));
    let auth = json!({ "tokens": { "ann": anns, "bob": bobs } });
    let mut server = stdio(&mark, &[]);
    server["stayput"] = json!({ "handles": "always" });
    let settings = json!({ "auth": auth, "session_tools": "all", "identify": { "cookie": true },
        "limits": { "per_owner": { "requests_per_second": "unlimited" } } });
    let gateway = Gateway::with(json!({ "test": server }), settings).await;
    let (url, ann, bob) = (gateway.at("test"), Somebody::bearer(&ann), Somebody::bearer(&bob));
    let connection = ann.connect(&url).await;
    assert_eq!(ann.text(&url, &connection, "count").await, "1");
    let handle = anns_handle(&ann, &url, &connection).await;
    let mut stream =
        ann.and("mcp-session-id", &connection).ask(Method::GET, &url, "").await.events();
    tokio::time::timeout(LONG, stream.next()).await.unwrap().unwrap();
    let event = stream.last_id().expect("events have ids").to_owned();
    let sse = format!("{}/sse/test", gateway.url);
    let mut line = ann.ask(Method::GET, &sse, "").await.events();
    let endpoint = tokio::time::timeout(LONG, line.next()).await.unwrap().unwrap();
    let endpoint = String::from_utf8_lossy(endpoint.data()).into_owned();
    let caller = endpoint.split_once("session=").unwrap().1.to_owned();
    let anns = Secrets { connection: connection.clone(), event, handle, caller };
    let nobodys = anns.never();
    let own = bob.connect(&url).await;
    let pairs = anns.attempts(&gateway, &bob, &own).into_iter();
    let pairs: Vec<_> = pairs.zip(nobodys.attempts(&gateway, &bob, &own)).collect();
    assert!(pairs.len() > 150, "{}", pairs.len());
    for (tried, nothing) in &pairs {
        let Attempt { what, method, url, body, .. } = tried;
        let (tried, nothing) = (seen(tried, &anns).await, seen(nothing, &nobodys).await);
        assert_eq!(tried, nothing, "{what}: {method} {url} {body}");
    }
    // An event id of Ann on Bob's connection is treated like an unknown one.
    let mut heard = Vec::new();
    for event in [&anns.event, &nobodys.event] {
        let who = bob.and("mcp-session-id", &own).and("last-event-id", event);
        let mut events = who.ask(Method::GET, &url, "").await.events();
        let first = tokio::time::timeout(LONG, events.next()).await.unwrap().unwrap();
        heard.push((first.name().to_owned(), first.data().to_vec()));
    }
    assert_eq!(heard[0], heard[1]);
    assert_eq!(ann.text(&url, &connection, "count").await, "2", "and nobody noticed anything");
    drop(gateway);
    gone(&mark).await;
}

/// The process that waits for Ann's first call never serves Bob, also if Ann has not called yet.
#[tokio::test]
async fn waiting_process_of_ann_is_not_given_to_bob() {
    let mark = mark("waiting");
    let ((ann, anns), (bob, bobs)) = (token("ann"), token("bob"));
    let auth = json!({ "tokens": { "ann": anns, "bob": bobs } });
    let gateway =
        Gateway::with(json!({ "test": stdio(&mark, &[]) }), json!({ "auth": auth })).await;
    let (url, ann, bob) = (gateway.at("test"), Somebody::bearer(&ann), Somebody::bearer(&bob));
    let anns = ann.connect(&url).await;
    let waiting = stayput_testkit::processes::with_token(&mark);
    assert_eq!(waiting.len(), 1);
    let bobs = bob.connect(&url).await;
    let pid = bob.text(&url, &bobs, "pid").await.parse::<u32>().unwrap();
    assert!(!waiting.contains(&pid), "Bob has the process of Ann");
    let pid = ann.text(&url, &anns, "pid").await.parse::<u32>().unwrap();
    assert_eq!(waiting, [pid]);
}

//! Servers that are restricted to some users, which do not exist for the others.

use http::Method;
use serde_json::{Value, json};
use stayput_testkit::mcp::{Events, TestServer};

use super::{
    Somebody,
    support::{Gateway, LONG, gone, mark, stdio},
    token,
};

/// Removes what differs between two equal runs: ids, handles and times.
pub(super) fn plain(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let words = text.split_inclusive(|c| !is_part(c)).map(|word| {
        let name = word.trim_end_matches(|c| !is_part(c));
        let secret =
            name.starts_with("sp_") || (name.len() == 36 && name.matches('-').count() == 4);
        if secret { word.replace(name, "ID") } else { word.to_owned() }
    });
    let digit = |c: char| if c.is_ascii_digit() { '0' } else { c };
    words.collect::<String>().chars().map(digit).collect()
}

/// Returns status and body of an answer, or the first event of a stream.
async fn shape(who: &Somebody, method: Method, url: &str, body: &str) -> (u16, String) {
    let answer = who.ask(method, url, body).await;
    let status = answer.status.as_u16();
    let body = tokio::time::timeout(LONG, answer.bytes()).await.unwrap().unwrap();
    (status, plain(&String::from_utf8_lossy(&body)))
}

pub(super) fn modern(method: &str, mut params: Value) -> (Vec<(&'static str, String)>, String) {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "modern", "version": "7" },
    });
    let named = params["name"].as_str().or(params["uri"].as_str()).map(str::to_owned);
    let mut headers =
        vec![("mcp-protocol-version", "2026-07-28".to_owned()), ("mcp-method", method.to_owned())];
    headers.extend(named.map(|name| ("mcp-name", name)));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    (headers, body.to_string())
}

/// Tries all ways in which Bob could detect a server `ops`, and returns the answers.
async fn tried(gateway: &Gateway, bob: &Somebody) -> Vec<(String, (u16, String))> {
    let mut answers = Vec::new();
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "bob", "version": "1" },
    }})
    .to_string();
    for path in ["/mcp/ops", "/mcp/ops/~key", "/mcp/OPS", "/sse/ops", "/sse/ops/messages?session=x"]
    {
        for method in [Method::GET, Method::POST, Method::DELETE, Method::OPTIONS] {
            let body = if method == Method::POST { &*hello } else { "" };
            let url = format!("{}{path}", gateway.url);
            let answer = shape(bob, method.clone(), &url, body).await;
            answers.push((format!("{method} {path}"), answer));
        }
    }
    let all = gateway.at("");
    let connection = bob.connect(&all).await;
    let on = bob.and("mcp-session-id", &connection);
    let requests = [
        ("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {} })),
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("tools/call", json!({ "name": "ops__count", "arguments": {} })),
        ("tools/call", json!({ "name": "open__count", "arguments": {} })),
        ("prompts/get", json!({ "name": "ops__greet" })),
        ("resources/read", json!({ "uri": "ops://x" })),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "ops__greet" },
            "argument": { "name": "a", "value": "" } }),
        ),
        ("tools/call", json!({ "name": "session_info", "arguments": {} })),
        ("logging/setLevel", json!({ "level": "info" })),
    ];
    for (method, params) in requests {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = shape(&on, Method::POST, &all, &message.to_string()).await;
        answers.push((format!("{method} {params}"), answer));
        if method == "initialize" || method == "logging/setLevel" {
            continue;
        }
        for path in ["/mcp", "/mcp/ops"] {
            let (headers, body) = modern(method, params.clone());
            let who =
                headers.iter().fold(bob.and("x-n", "1"), |who, (name, value)| who.and(name, value));
            let answer = shape(&who, Method::POST, &format!("{}{path}", gateway.url), &body).await;
            answers.push((format!("modern {path} {method} {params}"), answer));
        }
    }
    let (headers, body) = modern("server/discover", json!({}));
    let who = headers.iter().fold(bob.and("x-n", "1"), |who, (name, value)| who.and(name, value));
    answers.push(("discover".to_owned(), shape(&who, Method::POST, &all, &body).await));
    answers
}

/// E36: a server that is not for Bob looks to him as if it were not configured, on every path and in every list.
#[tokio::test]
async fn restricted_server_is_unknown_to_bob() {
    let (here, there) = (mark("whom"), mark("whom-without"));
    let ((ann, anns), (bob, bobs)) = (token("ann"), token("bob"));
    let auth = json!({ "metrics": "authenticated", "tokens": {
        "ann": { "hash": anns, "claims": { "team": ["dev", "ops"] } },
        "bob": { "hash": bobs, "claims": { "team": ["sales"] } },
    }});
    let mut ops = stdio(&here, &[]);
    ops["stayput"] = json!({ "for": { "team": "ops", "sub": ["ann", "bob"] } });
    let both = json!({ "open": stdio(&here, &[]), "ops": ops });
    let settings = json!({ "auth": auth, "session_tools": "all" });
    let gateway = Gateway::with(both, settings.clone()).await;
    let without = Gateway::with(json!({ "open": stdio(&there, &[]) }), settings).await;
    let (ann, bob) = (Somebody::bearer(&ann), Somebody::bearer(&bob));
    // Ann uses the server first, so that there is something to detect.
    for _ in 0..2 {
        let url = gateway.at("ops");
        let connection = ann.connect(&url).await;
        assert_eq!(ann.text(&url, &connection, "count").await, "1");
        let all = ann.connect(&gateway.at("")).await;
        assert_eq!(ann.text(&gateway.at(""), &all, "ops__count").await, "1");
        assert_eq!(ann.text(&gateway.at(""), &all, "open__count").await, "1");
        let (here, there) = (tried(&gateway, &bob).await, tried(&without, &bob).await);
        for ((what, here), (_, there)) in here.iter().zip(&there) {
            assert_eq!(here, there, "{what}");
        }
    }
    // A client without a token learns nothing about it, and metrics reveal nothing either.
    let anonymous = Somebody::nobody();
    let (known, never) = (gateway.at("ops"), gateway.at("never"));
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let known = shape(&anonymous, method.clone(), &known, "").await;
        assert_eq!(known, shape(&anonymous, method, &never, "").await);
    }
    let metrics = format!("{}/metrics", gateway.url);
    let numbers = shape(&bob, Method::GET, &metrics, "").await.1;
    assert!(numbers.contains("server=\"open\"") && !numbers.contains("ops"), "{numbers}");
    assert!(shape(&ann, Method::GET, &metrics, "").await.1.contains("server=\"ops\""));
    drop((gateway, without));
    gone(&here).await;
    gone(&there).await;
}

/// E23: additional tools of Ann's session are not in Bob's lists, though both use the same credentials towards the
/// server.
#[tokio::test]
async fn tools_listed_for_ann_are_not_listed_for_bob() {
    let mark = mark("relearned");
    let ((ann, anns), (bob, bobs)) = (token("ann"), token("bob"));
    let auth = json!({ "tokens": { "ann": anns, "bob": bobs } });
    let servers = json!({ "test": stdio(&mark, &[]) });
    let gateway = Gateway::with(servers, json!({ "auth": auth })).await;
    let (url, all) = (gateway.at("test"), gateway.at(""));
    let (ann, bob) = (Somebody::bearer(&ann), Somebody::bearer(&bob));
    let (headers, listing) = modern("tools/list", json!({}));
    let asking =
        |who: &Somebody| headers.iter().fold(who.and("x-n", "1"), |it, (n, v)| it.and(n, v));
    let (anns, bobs) = (ann.connect(&url).await, bob.connect(&url).await);
    let before = shape(&asking(&bob), Method::POST, &url, &listing).await;
    assert_eq!(shape(&asking(&ann), Method::POST, &url, &listing).await, before);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "notify", "arguments": { "tool": "anns-own" } } });
    let on = ann.and("mcp-session-id", &anns);
    assert_eq!(on.ask(Method::POST, &url, &body.to_string()).await.status, 200);
    for _ in 0..2 {
        for at in [&url, &all] {
            let seen = shape(&asking(&ann), Method::POST, at, &listing).await.1;
            assert!(seen.contains("anns-own"), "{seen}");
            let seen = shape(&asking(&bob), Method::POST, at, &listing).await.1;
            assert!(seen.contains("count") && !seen.contains("anns-own"), "{seen}");
        }
        let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }).to_string();
        for connection in [bobs.clone(), bob.connect(&url).await] {
            let on = bob.and("mcp-session-id", &connection);
            let seen = shape(&on, Method::POST, &url, &list).await.1;
            assert!(seen.contains("count") && !seen.contains("anns-own"), "{seen}");
        }
    }
    drop(gateway);
    gone(&mark).await;
}

/// R139, E36: the credentials for a server come from its own entry: literally, from the environment, from a file, or
/// per owner. The credentials of a client are not passed on.
#[tokio::test]
async fn servers_get_their_own_credentials() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "s3cr3t-file\n").unwrap();
    let ((ann, anns), (bob, bobs)) = (token("ann"), token("bob"));
    let auth = json!({ "tokens": { "ann": anns, "bob": bobs } });
    let headers = json!({
        "X-Static": "s3cr3t-static",
        "X-Env": "${PATH}",
        "X-File": format!("${{file:{}}}", file.display()),
        "X-Owner": "key-of-${owner.hash}",
    });
    let servers = json!({ "test": { "url": server.url(), "headers": headers } });
    let gateway = Gateway::with(servers, json!({ "auth": auth })).await;
    let url = gateway.at("test");
    let mut owners = Vec::new();
    for (token, somebody) in [(&ann, Somebody::bearer(&ann)), (&bob, Somebody::bearer(&bob))] {
        let connection = somebody.connect(&url).await;
        let on = somebody.and("mcp-session-id", &connection).and("x-static", "mine");
        let mut said = Vec::new();
        for name in ["x-static", "x-env", "x-file", "x-owner", "authorization"] {
            let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": { "name": "header", "arguments": { "name": name } } });
            let answer = on.ask(Method::POST, &url, &body.to_string()).await;
            said.push(tokio::time::timeout(LONG, answer.message()).await.unwrap().to_string());
        }
        assert!(said[0].contains("s3cr3t-static"), "{}", said[0]);
        assert!(said[1].contains(&std::env::var("PATH").unwrap()), "{}", said[1]);
        assert!(said[2].contains("s3cr3t-file"), "{}", said[2]);
        assert!(said[3].contains("key-of-") && !said[3].contains("${"), "{}", said[3]);
        assert!(said.iter().all(|said| !said.contains(token.as_str())), "{said:?}");
        owners.push(said[3].clone());
    }
    assert_ne!(owners[0], owners[1]);
}

/// Returns Ann, who is in `ops`, Bob, who is not, and their configuration.
fn teams() -> (Somebody, Somebody, Value) {
    let ((ann, anns), (bob, bobs)) = (token("ann"), token("bob"));
    let auth = json!({ "tokens": {
        "ann": { "hash": anns, "claims": { "team": "ops" } },
        "bob": { "hash": bobs, "claims": { "team": "sales" } },
    }});
    (Somebody::bearer(&ann), Somebody::bearer(&bob), auth)
}

/// Opens a connection and its stream.
async fn listening(who: &Somebody, url: &str) -> (Somebody, Events) {
    let who = who.and("mcp-session-id", &who.connect(url).await);
    let events = who.ask(Method::GET, url, "").await.events();
    (who, events)
}

/// E36: if a server is removed and added again, only clients that can see it get a notification. Bob gets none.
#[tokio::test]
async fn bob_is_not_notified_of_changes_of_a_restricted_server() {
    let mark = mark("whom-heard");
    let (ann, bob, auth) = teams();
    let mut ops = stdio(&mark, &[]);
    ops["stayput"] = json!({ "for": { "team": "ops" } });
    let (open, both) =
        (json!({ "open": stdio(&mark, &[]) }), json!({ "open": stdio(&mark, &[]), "ops": ops }));
    let gateway = Gateway::with(both.clone(), json!({ "auth": auth })).await;
    let all = gateway.at("");
    let (mut anns, mut bobs) = (listening(&ann, &all).await, listening(&bob, &all).await);
    let reloads = || gateway.log().matches("read anew and holds").count();
    for (times, servers) in [&open, &both].into_iter().enumerate() {
        gateway.configure(servers.clone());
        super::support::until("reload", || reloads() > times).await;
        for _ in 0..3 {
            let told = tokio::time::timeout(LONG, anns.1.message()).await.unwrap().unwrap();
            assert!(told["method"].as_str().unwrap().ends_with("/list_changed"), "{told}");
        }
    }
    let mut more = both;
    more["more"] = stdio(&mark, &[]);
    gateway.configure(more);
    super::support::until("reload", || reloads() > 2).await;
    let first = tokio::time::timeout(LONG, bobs.1.message()).await.unwrap().unwrap();
    assert!(first["method"].as_str().unwrap().ends_with("/list_changed"), "{first}");
    // His stream ends, and its messages can be counted.
    assert_eq!(bobs.0.ask(Method::DELETE, &all, "").await.status, 200);
    let mut heard = 1;
    while tokio::time::timeout(LONG, bobs.1.message()).await.unwrap().is_some() {
        heard += 1;
    }
    assert_eq!(heard, 3, "for the one that he sees");
}

/// E36: if a broken server returns, only clients that can see it get a notification. Bob gets none.
#[tokio::test]
async fn bob_is_not_notified_of_the_return_of_a_restricted_server() {
    let (ann, bob, auth) = teams();
    let mut server = TestServer::http(&["--era", "legacy"]).await;
    server.kill();
    let ops = json!({ "url": server.url(), "stayput": { "for": { "team": "ops" } } });
    let open = json!({ "command": "${stayput}", "args": ["demo-server"] });
    let gateway = Gateway::with(json!({ "open": open, "ops": ops }), json!({ "auth": auth })).await;
    let all = gateway.at("");
    let (mut anns, mut bobs) = (listening(&ann, &all).await, listening(&bob, &all).await);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }).to_string();
    let sees =
        async |who: &Somebody| shape(who, Method::POST, &all, &list).await.1.contains("ops__count");
    assert!(!sees(&anns.0).await, "it is not there yet");
    server.restart().await;
    let end = tokio::time::Instant::now() + LONG;
    while !sees(&anns.0).await {
        assert!(tokio::time::Instant::now() < end, "it does not come back");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let told = tokio::time::timeout(LONG, anns.1.message()).await.unwrap().unwrap();
    assert!(told["method"].as_str().unwrap().ends_with("/list_changed"), "{told}");
    assert!(!sees(&bobs.0).await);
    // His stream ends without a message.
    assert_eq!(bobs.0.ask(Method::DELETE, &all, "").await.status, 200);
    let heard = tokio::time::timeout(LONG, bobs.1.message()).await.unwrap();
    assert_eq!(heard, None);
}

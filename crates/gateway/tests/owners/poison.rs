//! Unrequested responses on a connection to a server, which must not answer any call.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};

use super::{
    Somebody,
    raw::{self, Heard},
    support::{Gateway, LONG},
    token,
};

const TRIES: usize = 400;

/// Text that must never reach a client.
const POISON: &str = "from another owner";

/// Number of requests on each connection after an unrequested response.
type After = Arc<Mutex<BTreeMap<usize, usize>>>;

/// Server that writes a second response after the answer to the tool `poison`: at once, or when the next request
/// begins on the same connection; as JSON or as SSE. The response contains an answer for every id that could follow.
fn poisonous(after: After) -> String {
    let tried = AtomicUsize::new(0);
    raw::serve(&["mine", "poison"], move |heard, stream| {
        let id = &heard.message["id"];
        if let Some(after) = after.lock().unwrap().get_mut(&heard.connection) {
            *after += 1;
        }
        if heard.tool() == "mine" {
            let word = heard.message["params"]["arguments"]["word"].as_str().unwrap();
            let answer = raw::text(id, word).to_string();
            return raw::write(stream, "200 OK", "application/json", &answer);
        }
        let answer = raw::text(id, "done").to_string();
        let written = raw::write(stream, "200 OK", "application/json", &answer);
        let tried = tried.fetch_add(1, Ordering::Relaxed);
        if tried % 2 == 1 {
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let next = stream.peek(&mut [0]);
            stream.set_read_timeout(None).unwrap();
            if !matches!(next, Ok(1)) {
                return written;
            }
        }
        after.lock().unwrap().insert(heard.connection, 0);
        written && spill(stream, id.as_u64().unwrap(), tried % 4 > 1)
    })
}

fn spill(stream: &mut TcpStream, id: u64, events: bool) -> bool {
    let ids = (0..60).chain(id.saturating_sub(30)..id + 30);
    let all: Vec<Value> = ids.map(|id| raw::text(&json!(id), POISON)).collect();
    let body = Value::from(all).to_string();
    match events {
        true => raw::write(stream, "200 OK", "text/event-stream", &format!("data: {body}\n\n")),
        false => raw::write(stream, "200 OK", "application/json", &body),
    }
}

async fn call(who: &Somebody, url: &str, connection: &str, params: Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let who = who.and("mcp-session-id", connection);
    let answer = who.ask(Method::POST, url, &body.to_string()).await;
    tokio::time::timeout(LONG, answer.message()).await.unwrap()
}

/// Invariant 1: an unrequested response after one owner's answer does not answer another owner's call. Its connection
/// is not used again.
#[tokio::test]
async fn unrequested_response_reaches_no_other_owner() {
    let after = After::default();
    let ((ann, one), (bob, two)) = (token("ann"), token("bob"));
    let auth = json!({ "tokens": { "ann": one, "bob": two } });
    let servers = json!({ "test": { "url": format!("{}/mcp", poisonous(after.clone())) } });
    let gateway = Gateway::with(servers, json!({ "auth": auth })).await;
    let url = gateway.at("test");
    let (ann, bob) = (Somebody::bearer(&ann), Somebody::bearer(&bob));
    let (anns, bobs) = (ann.connect(&url).await, bob.connect(&url).await);
    let health = format!("{}/healthz", gateway.url);
    let threads = std::thread::available_parallelism().unwrap().get();
    let (mut answered, mut caught) = (0, 0);
    for number in 0..TRIES {
        let done = call(&ann, &url, &anns, json!({ "name": "poison", "arguments": {} })).await;
        assert!(!done.to_string().contains(POISON), "{number}: {done}");
        // Each thread of the gateway has its own connections, and takes clients in turn.
        for _ in 0..number % (threads + 1) {
            assert_eq!(bob.ask(Method::GET, &health, "").await.status, 200);
        }
        let word = format!("word-{number}");
        let mine = json!({ "name": "mine", "arguments": { "word": word } });
        let said = call(&bob, &url, &bobs, mine).await;
        let said =
            said["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{said}"));
        if said == word {
            answered += 1;
        } else {
            assert!(said.contains("belongs to another request"), "{number}: {said}");
            caught += 1;
        }
    }
    assert_eq!(answered + caught, TRIES);
    assert!(answered > 0 && caught > 0, "{answered} and {caught}: one of both was not tried");
    let after = after.lock().unwrap();
    assert!(after.values().all(|requests| *requests <= 1), "{after:?}");
}

/// A connection that carried one set of credentials never carries another, not even one for another owner on the same
/// server.
#[tokio::test]
async fn connection_carries_one_set_of_credentials() {
    let seen: Arc<Mutex<BTreeMap<usize, BTreeSet<String>>>> = Arc::default();
    let note = seen.clone();
    let url = raw::serve(&["mine"], move |heard: &Heard, stream| {
        let name = format!("{} {}", heard.header("authorization"), heard.header("x-owner"));
        note.lock().unwrap().entry(heard.connection).or_default().insert(name);
        let answer = raw::text(&heard.message["id"], "fine").to_string();
        raw::write(stream, "200 OK", "application/json", &answer)
    });
    let server = |headers: Value| json!({ "url": format!("{url}/mcp"), "headers": headers });
    let servers = json!({
        "one": server(json!({ "Authorization": "Bearer s3cr3t-one" })),
        "two": server(json!({ "Authorization": "Bearer s3cr3t-two" })),
        "own": server(json!({ "X-Owner": "${owner.hash}" })),
    });
    let ((ann, one), (bob, two)) = (token("ann"), token("bob"));
    let auth = json!({ "tokens": { "ann": one, "bob": two } });
    let gateway = Gateway::with(servers, json!({ "auth": auth })).await;
    let mut all = Vec::new();
    for who in [Somebody::bearer(&ann), Somebody::bearer(&bob)] {
        let mut connections = Vec::new();
        for server in ["one", "two", "own"] {
            let url = gateway.at(server);
            connections.push((who.connect(&url).await, url));
        }
        all.push((who, connections));
    }
    for _ in 0..20 {
        for (who, connections) in &all {
            for (connection, url) in connections {
                assert_eq!(who.text(url, connection, "mine").await, "fine");
            }
        }
    }
    let seen = seen.lock().unwrap();
    assert!(seen.values().all(|credentials| credentials.len() == 1), "{seen:?}");
    let different: BTreeSet<_> = seen.values().flatten().collect();
    assert_eq!(different.len(), 4, "{different:?}");
    assert!(seen.len() < 60, "no connection was used twice: {}", seen.len());
}

//! Limits per owner: one owner at its limit does not affect another.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::Method;
use serde_json::{Value, json};

use super::{
    Somebody,
    support::{Gateway, LONG, gone, mark, stdio},
    token,
};

/// Starts a gateway with these limits for Ann and Bob.
async fn gateway(mark: &str, limits: Value) -> (Gateway, Arc<Somebody>, Arc<Somebody>) {
    let ((ann, anns), (bob, bobs)) = (token("ann"), token("bob"));
    let auth = json!({ "tokens": { "ann": anns, "bob": bobs }, "metrics": "authenticated" });
    let servers = json!({ "test": stdio(mark, &[]) });
    let gateway = Gateway::with(servers, json!({ "auth": auth, "limits": limits })).await;
    (gateway, Arc::new(Somebody::bearer(&ann)), Arc::new(Somebody::bearer(&bob)))
}

/// Returns the message of a JSON-RPC error and its `Retry-After`.
async fn advice(answer: stayput_testkit::mcp::Answer) -> (String, u64) {
    let retry = answer.header("retry-after").parse().unwrap();
    let error = answer.json().await;
    assert_eq!(error["jsonrpc"], "2.0", "{error}");
    (error["error"]["message"].as_str().unwrap().to_owned(), retry)
}

/// R170: Ann sends ten times as many requests as allowed, and only the allowed ones run. All requests of Bob run.
#[tokio::test]
async fn owner_over_its_rate_is_refused_and_others_are_not() {
    let mark = mark("pace");
    let limits = json!({ "per_owner": { "requests_per_second": 20 } });
    let (gateway, ann, bob) = gateway(&mark, limits).await;
    let url = gateway.at("test");
    let (anns, bobs) = (ann.connect(&url).await, bob.connect(&url).await);
    let start = tokio::time::Instant::now();
    let done = Arc::new(AtomicBool::new(false));
    let floods: Vec<_> = (0..8)
        .map(|number| {
            let (ann, url, anns, done) = (ann.clone(), url.clone(), anns.clone(), done.clone());
            tokio::runtime::Handle::current().spawn(async move {
                let (mut run, mut refused) = (0, 0);
                let id = format!("flood-{number}");
                let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
                    "params": { "name": "count", "arguments": {} } })
                .to_string();
                let on = ann.and("mcp-session-id", &anns);
                while !done.load(Ordering::SeqCst) {
                    let answer = on.ask(Method::POST, &url, &body).await;
                    if answer.status == 200 {
                        run += 1;
                        continue;
                    }
                    assert_eq!(answer.status, 429);
                    let (sentence, retry) = advice(answer).await;
                    assert!(sentence.contains("requests_per_second"), "{sentence}");
                    assert_eq!(retry, 1);
                    refused += 1;
                }
                (run, refused)
            })
        })
        .collect();
    // His full burst, whatever Ann does.
    for expected in 1..=30 {
        assert_eq!(bob.text(&url, &bobs, "count").await, expected.to_string());
    }
    done.store(true, Ordering::SeqCst);
    let (mut run, mut refused) = (0, 0);
    for flood in floods {
        let (one, other) = tokio::time::timeout(LONG, flood).await.unwrap().unwrap();
        (run, refused) = (run + one, refused + other);
    }
    let allowed = 40.0 + 20.0 * start.elapsed().as_secs_f64() + 1.0;
    assert!(f64::from(run) <= allowed, "{run} were run, {allowed} allowed");
    assert!(refused > 0, "{run} were run");
    // The counter confirms it: refused calls did not run.
    let answer = loop {
        let answer = ann.call(&url, &anns, "count").await;
        if answer.status == 200 {
            break answer.message().await;
        }
        refused += 1;
    };
    assert_eq!(answer["result"]["content"][0]["text"], (run + 1).to_string());
    let page = bob.ask(Method::GET, &format!("{}/metrics", gateway.url), "").await;
    let page = String::from_utf8(page.bytes().await.unwrap().to_vec()).unwrap();
    let counted = format!("stayput_requests_refused_total{{reason=\"too_many\"}} {refused}\n");
    assert!(page.contains(&counted), "{counted}{page}");
    drop(gateway);
    gone(&mark).await;
}

/// R170: each message of a batch counts against the rate.
#[tokio::test]
async fn batch_does_not_bypass_the_rate_limit() {
    let mark = mark("pace-batch");
    let (gateway, ann, _) =
        gateway(&mark, json!({ "per_owner": { "requests_per_second": 5 } })).await;
    let url = gateway.at("test");
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-03-26", "capabilities": {},
        "clientInfo": { "name": "ann", "version": "1" },
    }});
    let start = tokio::time::Instant::now();
    let connection = ann.ask(Method::POST, &url, &hello.to_string()).await;
    let connection = connection.header("mcp-session-id").to_owned();
    let one = |id: usize| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "count", "arguments": {} } })
    };
    let batch: Vec<Value> = (0..200).map(one).collect();
    let on = ann.and("mcp-session-id", &connection);
    let answers = on.ask(Method::POST, &url, &Value::from(batch).to_string()).await.json().await;
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 200);
    let refused = |it: &&Value| it["result"]["isError"] == true;
    let run = answers.iter().filter(|it| !refused(it)).count();
    let allowed = 10.0 + 5.0 * start.elapsed().as_secs_f64();
    assert!((1..=200).contains(&run) && f64::from(u32::try_from(run).unwrap()) <= allowed, "{run}");
    let told = answers.iter().find(refused).unwrap()["result"]["content"][0]["text"].as_str();
    assert!(told.unwrap().contains("Try again in 1 s"), "{told:?}");
    drop(gateway);
    gone(&mark).await;
}

/// R170: an owner at its session limit gets an error with a retry hint. Other owners still get sessions.
#[tokio::test]
async fn owner_at_its_session_limit_is_refused() {
    let mark = mark("owner-sessions");
    let (gateway, ann, bob) = gateway(&mark, json!({ "sessions_per_owner": 2 })).await;
    let url = gateway.at("test");
    for _ in 0..2 {
        let connection = ann.connect(&url).await;
        for expected in ["1", "2"] {
            assert_eq!(ann.text(&url, &connection, "count").await, expected);
        }
        // An open stream keeps the session from being idle.
        let stream = ann.and("mcp-session-id", &connection).ask(Method::GET, &url, "").await;
        assert_eq!(stream.status, 200);
        std::mem::forget(stream.events());
    }
    let answer = ann.greet(&url).await;
    assert_eq!(answer.status, 429);
    let (sentence, retry) = advice(answer).await;
    assert!(sentence.contains("2 live sessions") && retry > 0, "{sentence}");
    let connection = bob.connect(&url).await;
    assert_eq!(bob.text(&url, &connection, "count").await, "1");
    drop(gateway);
    gone(&mark).await;
}

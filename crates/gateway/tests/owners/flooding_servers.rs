//! Servers over HTTP that never stop sending during a call.

use std::{
    io::Write as _,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::json;

use super::{
    raw,
    support::{Gateway, LONG, until},
};

/// Memory that three floods may add to the gateway, with all that it needs for its other work.
const MAX_ADDED: usize = 150 << 20;

/// Tools and what each of them sends without end: requests of the server on the stream of the call, empty events, and
/// heads that announce the answer.
const FLOODS: [(&str, &str); 3] = [
    ("pings", "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n\n"),
    ("comments", ":\n\n"),
    ("heads", "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"),
];

/// Starts a server that answers the tool `mine`, and floods the callers of the others until they close the
/// connection. `open` counts these.
fn flooding(open: Arc<AtomicUsize>) -> String {
    raw::serve(&["mine", "pings", "comments", "heads"], move |heard, stream| {
        let Some((_, piece)) = FLOODS.iter().find(|(tool, _)| *tool == heard.tool()) else {
            let answer = raw::text(&heard.message["id"], "here").to_string();
            return raw::write(stream, "200 OK", "application/json", &answer);
        };
        open.fetch_add(1, Ordering::SeqCst);
        flood(stream, heard.tool() != "heads", piece);
        open.fetch_sub(1, Ordering::SeqCst);
        false
    })
}

fn flood(stream: &mut TcpStream, events: bool, piece: &str) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let pieces = piece.repeat((64 << 10) / piece.len());
    if events && stream.write_all(head.as_bytes()).is_err() {
        return;
    }
    while stream.write_all(pieces.as_bytes()).is_ok() {}
}

/// E22: a call to a server that sends without end fails at its timeout, does not slow down others, and costs little
/// memory. Its connection is closed.
#[tokio::test]
async fn flood_of_a_server_ends_with_the_timeout_of_the_call() {
    let open = Arc::new(AtomicUsize::new(0));
    let url = flooding(open.clone());
    let servers = json!({ "test": { "url": url, "stayput": { "timeout": "2s" } } });
    let gateway = Gateway::start(servers).await;
    let (calm, flooded) = (gateway.client("test").await, gateway.client("test").await);
    assert_eq!(calm.text(&gateway, "mine").await, "here");
    let quiet = gateway.peak_memory();
    for (tool, reason) in [
        ("pings", "did not answer within 2s"),
        ("comments", "did not answer within 2s"),
        ("heads", "the head of its answer is too large"),
    ] {
        let call = async {
            let answer = flooded.call(&gateway, tool, json!({})).await;
            assert!(answer.to_string().contains(reason), "{tool}: {answer}");
        };
        let others = async {
            for _ in 0..20 {
                assert_eq!(calm.text(&gateway, "mine").await, "here");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let both = async { tokio::join!(call, others) };
        tokio::time::timeout(LONG, both).await.unwrap_or_else(|_| panic!("{tool} did not end"));
        until("the connection is closed", || open.load(Ordering::SeqCst) == 0).await;
    }
    let added = gateway.peak_memory().saturating_sub(quiet);
    assert!(added < MAX_ADDED, "{} MiB more than before", added >> 20);
    assert_eq!(calm.text(&gateway, "mine").await, "here");
}

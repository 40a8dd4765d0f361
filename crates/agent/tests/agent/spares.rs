//! Spare processes of a hub.

use serde_json::json;
use stayput::{Http, Hub, Options, Stdio};

use crate::support::{ProcessMarker, TEST_TIMEOUT, builder, until};

/// Id of the process behind a session.
async fn pid(hub: &Hub, session: &str) -> u32 {
    let session = hub.session(session).await.unwrap();
    session.call("counter", "pid", json!({})).await.unwrap().text().parse().unwrap()
}

/// Spares are started with the hub. Each serves one session and is replaced, and none is left after the close.
#[tokio::test]
async fn each_spare_serves_one_session_and_is_replaced() {
    let marker = ProcessMarker::new();
    let hub = builder(&marker).warm("counter", 2).build().unwrap();
    let mut used = Vec::new();
    for sessions in 0..3 {
        until("the spares are there", || marker.processes().len() == 2 + sessions).await;
        let waiting = marker.processes();
        let pid = pid(&hub, &format!("chat-{sessions}")).await;
        assert!(waiting.contains(&pid) && !used.contains(&pid), "{pid} of {waiting:?}");
        used.push(pid);
    }
    hub.close(TEST_TIMEOUT).await;
    assert!(marker.processes().is_empty());
}

/// A server that is added later has its spares at once, and they end with it.
#[tokio::test]
async fn spares_come_and_go_with_their_server() {
    let marker = ProcessMarker::new();
    let hub = Hub::builder().build().unwrap();
    let mut options = Options::default();
    options.warm.count = 2;
    let server: Stdio = marker.server().env("DIR", "${session.dir}");
    hub.add_server("counter", server, options).await.unwrap();
    until("the spares are there", || marker.processes().len() == 2).await;
    let waiting = marker.processes();
    assert!(waiting.contains(&pid(&hub, "chat").await));
    assert!(hub.remove_server("counter").await);
    marker.wait_until_gone().await;
}

/// A server behind a URL has no processes, and an unknown server none either.
#[test]
fn warm_without_a_process_is_refused() {
    let url = Hub::builder().server("web", Http::new("http://127.0.0.1:9/mcp")).warm("web", 1);
    let sentence = url.build().unwrap_err().to_string();
    assert!(sentence.contains("reached by a URL; remove `warm`"), "{sentence}");
    let sentence = Hub::builder().warm("web", 1).build().unwrap_err().to_string();
    assert!(
        sentence.contains("`warm` is set for `web`, but there is no such server"),
        "{sentence}"
    );
}

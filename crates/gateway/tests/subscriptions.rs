//! Notifications that clients subscribed to arrive over whichever link they get.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::path::Path;

use serde_json::{Value, json};
use stayput_testkit::{mcp::Events, processes};
use support::{Client, Gateway, LONG, gone, mark, stdio, until};

const RESOURCE: &str = "test://count";

/// Returns the notifications of one change. The server always reports its list first, so the list of the second change
/// marks the end of the first.
async fn heard(gateway: &Gateway, by: &Client, events: &mut Events) -> Vec<String> {
    by.text(gateway, "notify").await;
    by.text(gateway, "notify").await;
    let mut all: Vec<String> = Vec::new();
    while all.iter().filter(|it| it.ends_with("/list_changed")).count() < 2 {
        let message = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
        all.push(message["method"].as_str().unwrap().to_owned());
    }
    all
}

const UPDATED: &str = "notifications/resources/updated";

async fn hears_updates(gateway: &Gateway, client: &Client, events: &mut Events) -> bool {
    heard(gateway, client, events).await.iter().any(|it| it == UPDATED)
}

/// Continues after a loss. The loss is also sent on the stream, as a warning at its end.
async fn after_the_loss(gateway: &Gateway, client: &Client, events: &mut Events) {
    let told = client.call(gateway, "count", json!({})).await;
    assert_eq!(told["result"]["isError"], true, "{told}");
    loop {
        let message = tokio::time::timeout(LONG, events.message()).await.unwrap().unwrap();
        if message["method"] == "notifications/message" {
            break;
        }
    }
    assert_eq!(client.text(gateway, "count").await, "1");
}

/// Kills all processes that carry this mark.
async fn kill(mark: &str) {
    for pid in processes::with_token(mark) {
        std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    }
    gone(mark).await;
}

async fn subscribe(gateway: &Gateway, client: &Client) {
    let done = client.request(gateway, "resources/subscribe", json!({ "uri": RESOURCE })).await;
    assert_eq!(done["result"], json!({}), "{done}");
}

/// E32: a listening client that uses a link which another session opened gets the notifications of that link.
#[tokio::test]
async fn listening_client_gets_notifications_of_a_shared_link() {
    let mark = mark("ear");
    let mut server = stdio(&mark, &[]);
    server["stayput"] = json!({ "isolation": "shared" });
    let gateway = Gateway::start(json!({ "test": server })).await;
    let (ann, bob) = (gateway.client("test").await, gateway.client("test").await);
    let mut stream = bob.get(&gateway, None).await.events();
    stream.next().await.unwrap();
    assert_eq!(ann.text(&gateway, "count").await, "1");
    assert_eq!(bob.text(&gateway, "count").await, "2");
    heard(&gateway, &ann, &mut stream).await;
}

/// The gateway repeats subscriptions at a new process, also after a restart of the gateway. It does not repeat
/// cancelled ones.
#[tokio::test]
async fn subscriptions_outlive_their_process() {
    let mark = mark("subscribed");
    let mut gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    let params = json!({ "uri": RESOURCE });
    let ask = async |gateway: &Gateway, method: &str| -> Value {
        client.request(gateway, method, params.clone()).await["result"].clone()
    };
    assert_eq!(ask(&gateway, "resources/subscribe").await, json!({}));
    let mut stream = client.get(&gateway, None).await.events();
    assert!(hears_updates(&gateway, &client, &mut stream).await);
    kill(&mark).await;
    after_the_loss(&gateway, &client, &mut stream).await;
    assert!(hears_updates(&gateway, &client, &mut stream).await);
    gateway.kill();
    gone(&mark).await;
    gateway.restart().await;
    let mut stream = client.get(&gateway, None).await.events();
    after_the_loss(&gateway, &client, &mut stream).await;
    assert!(hears_updates(&gateway, &client, &mut stream).await);
    assert_eq!(ask(&gateway, "resources/unsubscribe").await, json!({}));
    gateway.kill();
    gone(&mark).await;
    gateway.restart().await;
    let mut stream = client.get(&gateway, None).await.events();
    after_the_loss(&gateway, &client, &mut stream).await;
    assert!(!hears_updates(&gateway, &client, &mut stream).await);
}

/// E32: a subscription on a shared link stays until the last client that wants it leaves.
#[tokio::test]
async fn subscription_ends_with_its_last_subscriber() {
    let mark = mark("given-up");
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut server = stdio(&mark, &["--log", log.path().to_str().unwrap()]);
    server["stayput"] = json!({ "isolation": "shared" });
    let gateway = Gateway::start(json!({ "test": server })).await;
    let (ann, bob) = (gateway.client("test").await, gateway.client("test").await);
    let eve = gateway.client("test").await;
    for client in [&ann, &bob, &eve] {
        subscribe(&gateway, client).await;
    }
    let mut stream = bob.get(&gateway, None).await.events();
    assert!(hears_updates(&gateway, &bob, &mut stream).await);
    // A client that unsubscribes does not affect the others.
    let params = json!({ "uri": RESOURCE });
    let done = ann.request(&gateway, "resources/unsubscribe", params).await;
    assert_eq!(done["result"], json!({}), "{done}");
    assert!(hears_updates(&gateway, &bob, &mut stream).await);
    let said = || std::fs::read_to_string(log.path()).unwrap();
    let given_up = || said().matches("resources/unsubscribe").count();
    assert_eq!(given_up(), 1, "by Ann herself");
    assert_eq!(eve.delete(&gateway).await, 200);
    assert!(hears_updates(&gateway, &bob, &mut stream).await);
    assert_eq!(bob.delete(&gateway).await, 200);
    until("end of the subscription", || given_up() > 1).await;
    assert_eq!(ann.text(&gateway, "count").await, "1", "the link goes on");
    assert_eq!(given_up(), 2, "{}", said());
}

/// Server behind a filter that holds `logging/setLevel` back until the file `go` exists. The file `held` shows that it
/// waits.
fn held_up(mark: &str, folder: &Path) -> Value {
    let server = stdio(mark, &[]);
    let script = r#"while IFS= read -r line; do
        case "$line" in *logging/setLevel*)
            while [ ! -e "$FOLDER/go" ]; do : > "$FOLDER/held"; sleep 0.02; done;;
        esac
        printf '%s\n' "$line"
    done | "$@""#;
    let mut args = vec![json!("-c"), json!(script), json!("sh"), server["command"].clone()];
    args.extend(server["args"].as_array().unwrap().iter().cloned());
    json!({ "command": "sh", "args": args, "env": { "FOLDER": folder } })
}

/// E32: a new process gets the subscriptions of a client, even if the client that started it disconnects meanwhile.
#[tokio::test]
async fn subscriptions_outlive_a_client_that_disconnects() {
    let mark = mark("hung-up");
    let folder = tempfile::tempdir().unwrap();
    let (go, held) = (folder.path().join("go"), folder.path().join("held"));
    std::fs::write(&go, "").unwrap();
    let gateway = Gateway::start(json!({ "test": held_up(&mark, folder.path()) })).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    let level = json!({ "level": "warning" });
    let done = client.request(&gateway, "logging/setLevel", level).await;
    assert_eq!(done["result"], json!({}), "{done}");
    subscribe(&gateway, &client).await;
    std::fs::remove_file(&go).unwrap();
    kill(&mark).await;
    let call = json!({ "jsonrpc": "2.0", "id": 8, "method": "tools/call",
        "params": { "name": "count", "arguments": {} } })
    .to_string();
    tokio::select! {
        answer = client.send(&gateway, &call) => {
            tokio::time::timeout(LONG, answer.message()).await.unwrap();
            panic!("it was answered before its subscriptions were told");
        }
        () = until("held line", || held.exists()) => {}
    }
    // The gateway notices the disconnect a moment later. A longer pause would change nothing.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    std::fs::write(&go, "").unwrap();
    let mut stream = client.get(&gateway, None).await.events();
    after_the_loss(&gateway, &client, &mut stream).await;
    assert!(hears_updates(&gateway, &client, &mut stream).await);
}

//! Server of the conformance suite, on the official Rust SDK.

use serde_json::{Value, json};
use stayput_testkit::{
    peers::{self, Peer},
    program,
};
use stayput_upstream::{EraChoice, Http, LossReason, Server};
use stayput_wire::Era;

use crate::{
    kit::{Way, kept, open, talk, tool},
    listening::Listening,
    support::{close, place, try_call},
};

async fn start() -> Listening {
    // The program may have to be built first.
    let program = tokio::task::spawn_blocking(|| program("stayput-conformance-server"));
    let program = program.await.unwrap();
    Listening::start(Peer { program, args: Vec::new(), env: Vec::new() }, "--port").await
}

/// Legacy era: sessions, progress, server requests, and the loss of all with the server.
#[tokio::test]
async fn rmcp_works_as_legacy_server() {
    if peers::are_left_out() {
        return;
    }
    let (links, http) = (Way::Local.links(), start().await);
    let server = Server::new("rmcp", Http::new(http.url())).unwrap();
    let (ann, ben) = (place(), place());
    for place in [&ann, &ben] {
        let link = open(&links, &server, place).await;
        assert_eq!(link.initialize_result().era(), Era::Legacy);
        assert!(!tool(&link, "test_simple_text", &json!({})).await.is_empty());
        let call = json!({ "name": "test_sampling", "arguments": { "prompt": "hm" } });
        let thought = json!({
            "role": "assistant", "model": "none",
            "content": { "type": "text", "text": "a thought" },
        });
        let talked = talk(&link, &call, &thought).await;
        assert_eq!(talked.asked, ["sampling/createMessage"]);
        assert!(talked.text.contains("a thought"), "{talked:?}");
    }
    let http = http.restart().await;
    for place in [&ann, &ben] {
        let link = open(&links, &server, place).await;
        let generation = link.generation();
        let error = try_call(&link, "test_simple_text", "{}").await.unwrap_err();
        assert_eq!(error.loss().unwrap().reason(), LossReason::SessionUnknown, "{error}");
        assert!(!error.delivery().may_have_run(), "{error}");
        drop(link);
        let again = open(&links, &server, place).await;
        assert_eq!(again.generation(), generation.next());
        tool(&again, "test_simple_text", &json!({})).await;
    }
    close(&links).await;
    drop(http);
}

/// Modern era: each request is independent, progress included.
#[tokio::test]
async fn rmcp_works_as_modern_server() {
    if peers::are_left_out() {
        return;
    }
    let (links, http) = (Way::Local.links(), start().await);
    let server = kept("rmcp", Http::new(http.url()), EraChoice::Modern);
    let ann = place();
    let link = open(&links, &server, &ann).await;
    assert_eq!(link.initialize_result().era(), Era::Modern);
    assert!(!tool(&link, "test_simple_text", &json!({})).await.is_empty());
    let call = json!({
        "name": "test_tool_with_progress", "arguments": {}, "_meta": { "progressToken": "so far" },
    });
    let talked = talk(&link, &call, &Value::Null).await;
    let progress = talked.told.iter().filter(|it| it["method"] == "notifications/progress");
    let tokens: Vec<&Value> = progress.map(|it| &it["params"]["progressToken"]).collect();
    assert!(!tokens.is_empty() && tokens.iter().all(|token| **token == "so far"), "{talked:?}");
    let http = http.restart().await;
    tool(&link, "test_simple_text", &json!({})).await;
    assert_eq!(link.loss(), None);
    drop(link);
    close(&links).await;
    drop(http);
}

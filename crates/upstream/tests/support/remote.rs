//! Servers behind a URL, and requests to them.

use serde_json::{Value, json};
use stayput_testkit::mcp::TestServer;
use stayput_testkit::until_some;
use stayput_upstream::{
    Call, CallError, CallOptions, ClientCapabilities, Delivery, EraChoice, Http, Incoming,
    Isolation, Link, LinkOwner, Links, Listener, LossReason, Options, Server,
};

use super::{LONG, params, server, server_with};

/// Test server that is used as legacy without a probe.
pub(crate) fn legacy_at(url: &str) -> Server {
    server(Http::new(url), EraChoice::Legacy)
}

/// Server with only a configured URL, and one link for each session.
pub(crate) fn unknown_at(url: &str) -> Server {
    let isolation = Some(Isolation::PerSession);
    server_with(Http::new(url), Options { isolation, ..Options::default() })
}

/// Returns why a link has ended, if it has. Not for a link guard, whose loss is that of the previous link.
pub(crate) fn over(link: &Link) -> Option<LossReason> {
    link.loss().map(|loss| loss.reason())
}

/// Returns the next number of the counter behind a link.
pub(crate) async fn count(link: &Link) -> u64 {
    super::call(link, "count", "{}").await.parse().unwrap()
}

/// Counts once on a link and releases it.
pub(crate) async fn count_once(links: &Links, server: &Server, place: &LinkOwner) -> u64 {
    let link = super::open(links, server, place).await;
    count(&link).await
}

/// Starts a call.
pub(crate) async fn begin(link: &Link, tool: &str, arguments: &str) -> Call {
    let params = params(tool, arguments);
    link.call("tools/call", Some(&params), CallOptions::default()).await.unwrap()
}

pub(crate) async fn end(call: Call) -> Result<stayput_upstream::Answer, CallError> {
    tokio::time::timeout(LONG, call.answer()).await.unwrap()
}

/// Returns a rule for the first request of this kind.
pub(crate) fn once(on: &str, deed: &Value) -> Value {
    json!([{ "on": on, "nth": 1, "do": deed }])
}

/// Returns an answer with this status and body.
pub(crate) fn status(code: u16, body: impl Into<String>) -> Value {
    json!({ "status": { "code": code, "body": body.into() } })
}

/// Returns a JSON-RPC error under the id of the request.
pub(crate) fn error(code: i64, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":$id,"error":{{"code":{code},"message":"{message}"}}}}"#)
}

/// Asserts that the server reported the session as unknown, with this certainty of delivery.
pub(crate) fn assert_verdict(error: &CallError, delivery: Delivery, what: &str) {
    let loss = error.loss().unwrap_or_else(|| panic!("{what}: {error:?}"));
    assert_eq!(loss.reason(), LossReason::SessionUnknown, "{what}");
    assert_eq!(error.delivery(), delivery, "{what}");
}

/// Returns all messages of a call until its answer.
pub(crate) async fn all_of(mut call: Call) -> (Vec<Value>, Result<String, CallError>) {
    let mut told = Vec::new();
    loop {
        match tokio::time::timeout(LONG, call.next()).await.unwrap().unwrap() {
            Incoming::Notification(text) => told.push(serde_json::from_slice(&text).unwrap()),
            Incoming::Answer(answer) => return (told, answer.map(|answer| super::text(&answer))),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) async fn listen(link: &Link) -> Listener {
    let interest = r#"{"toolsListChanged":true}"#;
    link.listen(interest, ClientCapabilities::default()).await.unwrap()
}

/// Waits for the next notification of this method.
pub(crate) async fn hear(listener: &mut Listener, method: &str) -> Value {
    let heard = async {
        loop {
            let Some(Incoming::Notification(text)) = listener.next().await else {
                panic!("there is nothing more to hear")
            };
            let text: Value = serde_json::from_slice(&text).unwrap();
            if text["method"] == method {
                return text;
            }
        }
    };
    tokio::time::timeout(LONG, heard).await.unwrap()
}

/// Waits until a counter of the server has this value.
pub(crate) async fn until_counted(http: &TestServer, name: &str, wanted: u64) {
    let what = format!("{name} is {wanted}");
    until_some(&what, async || (http.counted(name).await == wanted).then_some(())).await;
}

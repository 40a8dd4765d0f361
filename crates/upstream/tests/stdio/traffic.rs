//! Ids, progress and logs, and their receivers.

use stayput_upstream::{Call, CallOptions, ClientCapabilities, Incoming, Link};
use stayput_wire::Message;

use crate::support::{
    LONG, close, legacy, links, open, params, place, scripted, text, token, until,
};

/// Returns the next message for a call.
async fn next(call: &mut Call) -> Option<Incoming> {
    tokio::time::timeout(LONG, call.next()).await.unwrap()
}

async fn send(link: &Link, request: &str) -> Call {
    let message = Message::parse(request.as_bytes()).unwrap();
    link.send(&message, CallOptions::default()).await.unwrap()
}

fn said(incoming: Option<Incoming>) -> String {
    match incoming {
        Some(Incoming::Notification(text)) => String::from_utf8(text.to_vec()).unwrap(),
        Some(Incoming::Answer(answer)) => {
            String::from_utf8(answer.unwrap().into_bytes().to_vec()).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

/// Design §5: ids are echoed byte for byte.
#[tokio::test]
async fn every_id_is_returned_unchanged() {
    let links = links();
    let link = open(&links, &legacy(&[]), &place()).await;
    let ids =
        [r#""a\/\u00e4 b""#, "0", "-7", "9007199254740993", "18446744073709551616", r#""""#, "1.0"];
    for id in ids {
        let request = format!(
            r#"{{"jsonrpc":"2.0", "method":"tools/call","params":{{"name":"count"}},"id": {id} }}"#
        );
        let Ok(message) = Message::parse(request.as_bytes()) else { continue };
        let call = link.send(&message, CallOptions::default()).await.unwrap();
        let answer = call.answer().await.unwrap();
        let answer = String::from_utf8(answer.into_bytes().to_vec()).unwrap();
        assert!(answer.contains(&format!("\"id\":{id},")), "{id}: {answer}");
    }
    assert!(ids.iter().filter(|id| id.starts_with('"')).count() == 2);
    drop(link);
    close(&links).await;
}

/// Two clients with the same ids share a link: each gets its own answer.
#[tokio::test]
async fn two_calls_under_the_same_id_get_their_own_answers() {
    let links = links();
    let link = open(&links, &legacy(&[]), &place()).await;
    let echo = |n: u32| {
        let arguments = format!(r#"{{"n":{n}}}"#);
        let params = params("echo", &arguments);
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
    };
    let (one, two) = (send(&link, &echo(1)).await, send(&link, &echo(2)).await);
    assert_eq!(link.in_flight(), 2);
    let (two, one) = (two.answer().await.unwrap(), one.answer().await.unwrap());
    for (answer, n) in [(one, 1), (two, 2)] {
        assert_eq!(text(&answer), format!(r#"{{"n":{n}}}"#));
        assert!(Message::parse(answer.as_bytes()).unwrap().id().unwrap().as_str() == "1");
    }
    drop(link);
    close(&links).await;
}

/// Design §5: no message of a call follows its answer. Late messages are counted and dropped.
#[tokio::test]
async fn messages_after_the_answer_are_counted_and_dropped() {
    let links = links();
    let script = r#"take
progress() { printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%s}}\n' $id $1; }
progress 1
answer $id '{}'
progress 2
answer $id '{}'
echo '{"jsonrpc":"2.0","id":77,"result":{}}'
echo '{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}'
take
answer $id '{}'
cat >/dev/null"#;
    let link = open(&links, &scripted(script, &token()), &place()).await;
    let request =
        r#"{"jsonrpc":"2.0","id":5,"method":"m","params":{"_meta":{"progressToken":"t"}}}"#;
    let mut call = send(&link, request).await;
    assert!(said(next(&mut call).await).contains(r#""progressToken":"t","progress":1"#));
    assert!(said(next(&mut call).await).contains(r#""id":5"#));
    assert!(next(&mut call).await.is_none());
    assert!(send(&link, r#"{"jsonrpc":"2.0","id":6,"method":"m"}"#).await.answer().await.is_ok());
    assert_eq!(link.counts().late, 4);
    drop(link);
    close(&links).await;
}

/// An answer to a dropped call is late. The server gets one cancellation.
#[tokio::test]
async fn answer_to_a_dropped_call_is_late() {
    let links = links();
    let script = r#"take
first=$id
read -r cancelled
answer $first '{}'
take
answer $id "{\"first\":$first,\"heard\":$cancelled}"
cat >/dev/null"#;
    let link = open(&links, &scripted(script, &token()), &place()).await;
    send(&link, r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#).await.cancel();
    assert_eq!(link.in_flight(), 0);
    let answer = send(&link, r#"{"jsonrpc":"2.0","id":"b","method":"m"}"#).await.answer().await;
    let answer = answer.unwrap();
    let heard: serde_json::Value = serde_json::from_str(answer.result().unwrap()).unwrap();
    assert_eq!(heard["heard"]["method"], "notifications/cancelled");
    assert_eq!(heard["heard"]["params"]["requestId"], heard["first"]);
    until("the late answer is counted", || link.counts().late == 1).await;
    drop(link);
    close(&links).await;
}

/// An error without an id belongs to the only call.
#[tokio::test]
async fn error_without_an_id_ends_the_only_call() {
    let links = links();
    let script = r#"read -r line
echo '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}'
cat >/dev/null"#;
    let link = open(&links, &scripted(script, &token()), &place()).await;
    let answer = send(&link, r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#).await.answer().await;
    assert_eq!(answer.unwrap().error_message().as_deref(), Some("what?"));
    drop(link);
    close(&links).await;
}

/// Design §5: log messages go to the call in flight if there is only one, otherwise to listeners.
#[tokio::test]
async fn logs_go_to_the_only_call_or_to_listeners() {
    let links = links();
    let link = open(&links, &legacy(&[]), &place()).await;
    let log = params("log", r#"{"n":2}"#);
    let mut call = link.call("tools/call", Some(&log), CallOptions::default()).await.unwrap();
    assert!(said(next(&mut call).await).contains("line 1"));
    assert!(said(next(&mut call).await).contains("line 2"));
    assert!(matches!(next(&mut call).await, Some(Incoming::Answer(Ok(_)))));
    assert_eq!(link.counts().unheard, 0);
    // With several calls in flight their owner is unknown.
    let slow = params("slow", r#"{"ms":60000}"#);
    let slow = link.call("tools/call", Some(&slow), CallOptions::default()).await.unwrap();
    let mut call = link.call("tools/call", Some(&log), CallOptions::default()).await.unwrap();
    assert!(matches!(next(&mut call).await, Some(Incoming::Answer(Ok(_)))));
    assert_eq!(link.counts().unheard, 2);
    let mut listener = link.listen("{}", ClientCapabilities::default()).await.unwrap();
    let mut call = link.call("tools/call", Some(&log), CallOptions::default()).await.unwrap();
    assert!(matches!(next(&mut call).await, Some(Incoming::Answer(Ok(_)))));
    let heard = tokio::time::timeout(LONG, listener.next()).await.unwrap();
    assert!(said(heard).contains("line 1"));
    assert_eq!(link.counts().unheard, 2);
    drop((slow, listener, link));
    close(&links).await;
}

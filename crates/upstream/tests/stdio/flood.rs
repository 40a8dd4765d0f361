//! Floods for a reader that does not read (design §5, order).

use stayput_upstream::{
    Call, CallError, CallOptions, ClientCapabilities, Incoming, Links, PooledLink,
};

use crate::support::{LONG, close, links, open, place, scripted, token, until};

/// More than 4 MiB of lines.
const LINES: usize = 40_000;

/// Opens a server that writes a line very often before it answers the first call, and then answers a second one.
async fn flooded(links: &Links, line: &str) -> PooledLink {
    let script = format!(
        r#"take
line=$(echo '{line}' | sed "s/TOKEN/$id/")
yes "$line" | head -n {LINES}
answer $id '{{}}'
while take; do
    case $line in *'"id":'*'"method":"again"'*) answer $id '{{}}' ;; esac
done"#
    );
    open(links, &scripted(&script, &token()), &place()).await
}

fn notification(method: &str, params: &str) -> String {
    let fill = "x".repeat(120);
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{params},"fill":"{fill}"}}}}"#)
}

/// Reads all waiting messages of a call, and returns how it ended.
async fn drain(call: &mut Call) -> (usize, usize, Result<(), CallError>) {
    let (mut count, mut bytes) = (0, 0);
    loop {
        match tokio::time::timeout(LONG, call.next()).await.unwrap().unwrap() {
            Incoming::Notification(text) => {
                count += 1;
                bytes += text.len();
            }
            Incoming::Answer(answer) => return (count, bytes, answer.map(drop)),
            _ => count += 1,
        }
    }
}

/// Checks that the link is alive.
async fn lives(link: &PooledLink) {
    let call = link.call("again", None, CallOptions::default()).await.unwrap();
    assert!(tokio::time::timeout(LONG, call.answer()).await.unwrap().is_ok());
}

#[tokio::test]
async fn unread_progress_is_replaced_by_newer_progress() {
    let links = links();
    let progress = notification("notifications/progress", r#""progressToken":TOKEN,"progress":1"#);
    let link = flooded(&links, &progress).await;
    let params = r#"{"_meta":{"progressToken":1}}"#;
    let mut call = link.call("m", Some(params), CallOptions::default()).await.unwrap();
    until("all came", || link.in_flight() == 0).await;
    let (count, bytes, end) = drain(&mut call).await;
    assert!(end.is_ok(), "{end:?}");
    assert!((1..LINES).contains(&count) && bytes <= 4 << 20, "{count} of {bytes} bytes");
    assert_eq!(call.missed_logs(), 0);
    lives(&link).await;
    drop((call, link));
    close(&links).await;
}

#[tokio::test]
async fn unread_logs_are_dropped_and_counted() {
    let links = links();
    let log = notification("notifications/message", r#""level":"info""#);
    let link = flooded(&links, &log).await;
    let mut call = link.call("m", None, CallOptions::default()).await.unwrap();
    until("all came", || link.in_flight() == 0).await;
    let (count, bytes, end) = drain(&mut call).await;
    assert!(end.is_ok(), "{end:?}");
    assert!(bytes <= 4 << 20, "{bytes} bytes");
    let missed = usize::try_from(call.missed_logs()).unwrap();
    assert!(missed > 0 && missed + count == LINES, "{missed} and {count}");
    lives(&link).await;
    drop((call, link));
    close(&links).await;
}

/// A message that must not be lost replaces messages that may be dropped.
#[tokio::test]
async fn server_request_replaces_logs() {
    let links = links();
    let log = notification("notifications/message", r#""level":"info""#);
    let fill = "x".repeat(1_000);
    let script = format!(
        r#"take
yes '{log}' | head -n {LINES}
echo '{{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{{"m":"{fill}"}}}}'
read -r reply
answer $id '{{}}'
cat >/dev/null"#
    );
    let link = open(&links, &scripted(&script, &token()), &place()).await;
    let mut call = link.call("m", None, CallOptions::default()).await.unwrap();
    // This many fit. The request replaces only a few of the oldest.
    let fit = (4 << 20) / log.len();
    let missed = |call: &Call| usize::try_from(call.missed_logs()).unwrap();
    until("the question came", || missed(&call) > LINES - fit).await;
    let missed = missed(&call);
    assert!(missed < LINES - fit + 100, "{missed}");
    let (count, _, end) = drain(&mut call).await;
    assert!(end.is_ok(), "{end:?}");
    assert_eq!(count + missed, LINES + 1);
    drop((call, link));
    close(&links).await;
}

/// If messages that must not be lost are not read, only their call fails.
#[tokio::test]
async fn call_that_does_not_read_server_requests_fails_alone() {
    let links = links();
    let fill = "x".repeat(120);
    let ask = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{{"m":"{fill}"}}}}"#
    );
    let link = flooded(&links, &ask).await;
    let mut call = link.call("m", None, CallOptions::default()).await.unwrap();
    until("it was given up", || link.in_flight() == 0).await;
    let (_, _, end) = drain(&mut call).await;
    assert!(matches!(end, Err(CallError::SlowReader)), "{end:?}");
    lives(&link).await;
    assert_eq!(link.counts().late, 1, "its answer came after all");
    drop((call, link));
    close(&links).await;
}

/// A listener that does not read gets an error, and affects no other reader.
#[tokio::test]
async fn listener_that_does_not_read_gets_an_error() {
    let links = links();
    let update = notification("notifications/resources/updated", r#""uri":"a:b""#);
    let link = flooded(&links, &update).await;
    let mut listener = link.listen("{}", ClientCapabilities::default()).await.unwrap();
    let call = link.call("m", None, CallOptions::default()).await.unwrap();
    assert!(tokio::time::timeout(LONG, call.answer()).await.unwrap().is_ok());
    let mut heard = 0;
    let end = loop {
        match listener.next().await.unwrap() {
            Incoming::Answer(end) => break end,
            _ => heard += 1,
        }
    };
    assert!(matches!(end, Err(CallError::SlowReader)), "{end:?}");
    assert!(heard > 1_000, "{heard}");
    lives(&link).await;
    drop((listener, link));
    close(&links).await;
}

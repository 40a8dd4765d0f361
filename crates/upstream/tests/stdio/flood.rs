//! Much for one who does not read (design §5, order).

use stayput_upstream::{Call, CallError, CallOptions, Declares, Incoming, Links, PooledLink};

use crate::world::{LONG, close, links, open, place, scripted, token, until};

/// More than 4 MiB of it.
const LINES: usize = 40_000;

/// A server that says a line very often before it answers the first call, and answers a second one.
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

/// All that waits for a call, and how it ended.
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

/// The link lives on.
async fn lives(link: &PooledLink) {
    let call = link.call("again", None, CallOptions::default()).await.unwrap();
    assert!(tokio::time::timeout(LONG, call.answer()).await.unwrap().is_ok());
}

#[tokio::test]
async fn progress_that_is_not_read_makes_way_for_newer_progress() {
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
async fn logs_that_are_not_read_are_dropped_and_counted() {
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

/// What must not get lost pushes out what can be done without.
#[tokio::test]
async fn a_question_finds_room_among_logs() {
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
    // So many fit. The question pushes out a few of them, the oldest, and no more.
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

/// What must not get lost fails the call alone if it is not read.
#[tokio::test]
async fn a_call_that_does_not_read_its_questions_fails_alone() {
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

/// A listener that does not read is told so, and costs nobody else anything.
#[tokio::test]
async fn a_listener_that_does_not_read_is_told_so() {
    let links = links();
    let update = notification("notifications/resources/updated", r#""uri":"a:b""#);
    let link = flooded(&links, &update).await;
    let mut listener = link.listen("{}", Declares::default()).await.unwrap();
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

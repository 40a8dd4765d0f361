//! Child that does not read.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use futures_util::future::join_all;
use stayput_testkit::processes;
use stayput_upstream::{CallError, CallOptions, Delivery, Links, PooledLink};
use stayput_wire::Message;

use crate::support::{LONG, call, close, kill, legacy, links, open, place, scripted, token, until};

const MIB: usize = 1 << 20;

/// Returns a request of this many bytes.
fn request(bytes: usize) -> String {
    let fill = "x".repeat(bytes);
    format!(r#"{{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{{"name":"{fill}"}}}}"#)
}

/// Opens a link to a child that reads nothing after `initialize`.
async fn unread(links: &Links, token: &str) -> Arc<PooledLink> {
    Arc::new(open(links, &scripted("sleep 1000", token), &place()).await)
}

/// Sends a request and waits for the answer.
async fn exchange(
    link: Arc<PooledLink>,
    text: Arc<String>,
    limit: Duration,
) -> Result<(), CallError> {
    let message = Message::parse(text.as_bytes()).unwrap();
    let options = CallOptions { limit: Some(limit), ..CallOptions::default() };
    link.send(&message, options).await?.answer().await.map(drop)
}

/// E22, invariant 6: callers wait and can be cancelled, nothing accumulates, and other links are not affected.
#[tokio::test]
async fn requests_for_a_child_that_does_not_read_wait_outside() {
    let links = links();
    let link = unread(&links, &token()).await;
    let text = Arc::new(request(MIB));
    let before = processes::memory(std::process::id());
    let mut calls: Vec<_> =
        (0..100).map(|_| Box::pin(exchange(link.clone(), text.clone(), LONG))).collect();
    let sent = async {
        let all = join_all(calls.iter_mut()).await;
        panic!("it does not read: {all:?}");
    };
    let others = async {
        until("some are taken", || link.in_flight() > 3).await;
        let other = open(&links, &legacy(&[]), &place()).await;
        for n in 1..=20 {
            assert_eq!(call(&other, "count", "{}").await, n.to_string());
        }
    };
    tokio::select! {
        () = sent => {}
        () = others => {}
    }
    assert!(link.in_flight() < 8, "{} were taken", link.in_flight());
    let grown = processes::memory(std::process::id()).saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
    drop(calls);
    assert_eq!(link.in_flight(), 0);
    drop(link);
    close(&links).await;
}

/// A cancelled call lets a waiting one in, even if the child reads nothing.
#[tokio::test]
async fn cancelled_call_lets_the_next_one_in() {
    let links = links();
    let link = unread(&links, &token()).await;
    let send = |bytes: usize| {
        let (link, text) = (link.clone(), Arc::new(request(bytes)));
        Box::pin(exchange(link, text, LONG))
    };
    let (mut begun, mut large, mut last) = (send(MIB), send(5 * MIB), send(MIB));
    let mut sent = 0;
    for call in [&mut begun, &mut large, &mut last] {
        let polled = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        sent += 1;
        assert_eq!(link.in_flight(), sent.min(2), "the third has to wait");
    }
    // After this the pipe is full, and the writer is blocked.
    let settled = tokio::time::timeout(Duration::from_millis(100), &mut last).await;
    assert!(settled.is_err(), "the child does not answer");
    drop(large);
    tokio::select! {
        _ = &mut last => panic!("the child does not answer"),
        () = until("the last one is in", || link.in_flight() == 2) => {}
    }
    drop((begun, last));
    assert_eq!(link.in_flight(), 0);
    drop(link);
    close(&links).await;
}

/// Invariant 2: a request that was still waiting here certainly did not run.
#[tokio::test]
async fn unwritten_request_of_a_dead_child_was_not_sent() {
    let links = links();
    let token = token();
    let link = unread(&links, &token).await;
    let text = Arc::new(request(MIB));
    let calls = (0..8).map(|_| exchange(link.clone(), text.clone(), LONG));
    let killed = async {
        until("some are taken", || link.in_flight() > 3).await;
        kill(&token);
    };
    let (ended, ()) =
        tokio::time::timeout(LONG, async { tokio::join!(join_all(calls), killed) }).await.unwrap();
    let told: Vec<_> = ended.into_iter().map(|end| end.unwrap_err()).collect();
    assert!(told.iter().all(|error| error.loss().is_some()), "{told:?}");
    let unknown = told.iter().filter(|it| it.delivery() == Delivery::Unknown).count();
    let unsent = told.iter().filter(|it| it.delivery() == Delivery::NotSent).count();
    assert_eq!((unknown, unsent), (1, 7), "only the first was begun");
    drop(link);
    close(&links).await;
}

/// The timeout of a call also holds while it waits to be sent.
#[tokio::test]
async fn call_that_is_never_written_times_out_as_not_sent() {
    let links = links();
    let link = unread(&links, &token()).await;
    let soon = Duration::from_millis(300);
    let text = Arc::new(request(3 * MIB));
    let calls = (0..4).map(|_| exchange(link.clone(), text.clone(), soon));
    let ended = tokio::time::timeout(LONG, join_all(calls)).await.unwrap();
    let told: Vec<_> = ended.into_iter().map(|end| end.unwrap_err()).collect();
    assert!(matches!(told[0], CallError::TimedOut { .. }), "it was begun: {}", told[0]);
    for error in &told[1..] {
        assert_eq!(error.delivery(), Delivery::NotSent, "{error}");
        assert!(error.to_string().contains("does not read"), "{error}");
    }
    assert_eq!(link.in_flight(), 0);
    drop(link);
    close(&links).await;
}

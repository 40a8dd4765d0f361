//! Invariant 6: whatever is dropped at whatever await, nothing leaks.

use std::{future::poll_fn, task::Poll, time::Duration};

use crate::support::{TEST_TIMEOUT, ProcessMarker, count, hub};
use serde_json::json;
use stayput::Hub;

/// The most polls that are tried: a run that is not done by then would never be.
const MOST: usize = 500;

/// Polls a future so many times, then drops it. Says what it gave, if it came to that.
async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = Some(Box::pin(future));
    let mut left = times;
    let run = poll_fn(move |cx| {
        let Some(running) = &mut future else { return Poll::Ready(None) };
        if let Poll::Ready(output) = running.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        left -= 1;
        if left == 0 {
            future = None;
            return Poll::Ready(None);
        }
        Poll::Pending
    });
    tokio::time::timeout(TEST_TIMEOUT, run).await.unwrap()
}

/// Drops it after each number of polls, until it runs to its end.
async fn at_every_poll<F: Future>(mut make: impl FnMut() -> F, marker: &ProcessMarker) {
    for times in 1..MOST {
        let done = polled(times, make()).await.is_some();
        marker.wait_until_gone().await;
        if done {
            return;
        }
    }
    panic!("it did not end within {MOST} polls");
}

/// R011, R032, E37: a run that is dropped anywhere leaves no process, and the next one works.
#[tokio::test]
async fn a_run_can_be_dropped_anywhere() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let run = || async {
        hub.run(async {
            count(&hub).await;
            count(&hub).await;
        })
        .await;
    };
    at_every_poll(run, &marker).await;
    assert_eq!(hub.run(count(&hub)).await, 1);
}

/// A call that is dropped anywhere leaves its session as it is: nothing is lost, nothing runs on.
#[tokio::test]
async fn a_call_can_be_dropped_anywhere() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    for times in 1..MOST {
        let call = session.call("counter", "slow", json!({ "ms": 20, "steps": 2 }));
        let done = polled(times, call.into_future()).await.is_some();
        crate::support::wait_until("nothing is in flight", || {
            !matches!(session.status("counter").unwrap(), stayput::SessionStatus::Live { in_flight, .. } if in_flight > 0)
        })
        .await;
        if done {
            break;
        }
    }
    // Its one process is the one that the first call started.
    session.call("counter", "count", json!({})).await.unwrap();
    assert_eq!(marker.processes().len(), 1);
    hub.close(TEST_TIMEOUT).await;
    assert!(marker.processes().is_empty());
}

/// The end and the closing can be dropped, too: they go on.
#[tokio::test]
async fn an_end_can_be_dropped_anywhere() {
    for times in 1..20 {
        let marker = ProcessMarker::new();
        let hub = hub(&marker);
        let session = hub.session("a").await.unwrap();
        session.call("counter", "count", json!({})).await.unwrap();
        let ended = polled(times, session.end()).await;
        // What was begun is finished, here or by whoever asks next.
        session.end().await.unwrap();
        marker.wait_until_gone().await;
        let closing = ProcessMarker::new();
        let other = crate::support::hub(&closing);
        let session = other.session("a").await.unwrap();
        session.call("counter", "count", json!({})).await.unwrap();
        let closed = polled(times, other.close(TEST_TIMEOUT)).await;
        closing.wait_until_gone().await;
        if ended.is_some() && closed.is_some() {
            return;
        }
    }
}

/// R005, R033: a thousand runs at once are a thousand sessions, and all of them end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_runs_at_once() {
    let server = stayput_testkit::mcp::TestServer::http(&["--era", "legacy", "--json"]).await;
    let hub = Hub::builder().server("counter", stayput::Http::new(server.url())).build().unwrap();
    let runs = (0..1_000).map(|_| {
        let hub = hub.clone();
        tokio::spawn(async move {
            let inner = hub.clone();
            hub.run(async move { [count(&inner).await, count(&inner).await, count(&inner).await] })
                .await
        })
    });
    let runs: Vec<_> = runs.collect();
    for run in runs {
        assert_eq!(run.await.unwrap(), [1, 2, 3]);
    }
    let report = hub.close(Duration::from_secs(30)).await;
    assert_eq!((report.sessions, report.links, report.killed), (0, 0, 0));
}

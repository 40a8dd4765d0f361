//! Cancellation: a future that is dropped at any await leaks nothing (invariant 6).

use std::{future::poll_fn, task::Poll, time::Duration};

use crate::support::{ProcessMarker, TEST_TIMEOUT, count, hub};
use serde_json::json;
use stayput::Hub;

/// Maximum number of polls until a run must be complete.
const MAX_POLLS: usize = 500;

/// Polls a future this many times, then drops it. Returns its output if it was ready.
async fn poll_times<F: Future>(times: usize, future: F) -> Option<F::Output> {
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

/// Drops the future after one poll, two polls and so on, until it completes.
async fn drop_at_every_poll<F: Future>(mut make: impl FnMut() -> F, marker: &ProcessMarker) {
    for times in 1..MAX_POLLS {
        let done = poll_times(times, make()).await.is_some();
        marker.wait_until_gone().await;
        if done {
            return;
        }
    }
    panic!("it did not end within {MAX_POLLS} polls");
}

/// R011, R032, E37: and the next run works.
#[tokio::test]
async fn run_dropped_at_any_poll_leaves_no_process() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let run = || async {
        hub.run(async {
            count(&hub).await;
            count(&hub).await;
        })
        .await;
    };
    drop_at_every_poll(run, &marker).await;
    assert_eq!(hub.run(count(&hub)).await, 1);
}

#[tokio::test]
async fn call_dropped_at_any_poll_leaves_its_session_unchanged() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    for times in 1..MAX_POLLS {
        let call = session.call("counter", "slow", json!({ "ms": 20, "steps": 2 }));
        let done = poll_times(times, call.into_future()).await.is_some();
        crate::support::until("nothing is in flight", || {
            !matches!(session.status("counter").unwrap(), stayput::SessionStatus::Live { in_flight, .. } if in_flight > 0)
        })
        .await;
        if done {
            break;
        }
    }
    // The process of the first call is still the only one.
    session.call("counter", "count", json!({})).await.unwrap();
    assert_eq!(marker.processes().len(), 1);
    hub.close(TEST_TIMEOUT).await;
    assert!(marker.processes().is_empty());
}

#[tokio::test]
async fn dropped_end_and_close_continue() {
    for times in 1..20 {
        let marker = ProcessMarker::new();
        let hub = hub(&marker);
        let session = hub.session("a").await.unwrap();
        session.call("counter", "count", json!({})).await.unwrap();
        let ended = poll_times(times, session.end()).await;
        // The end continues in the background; a second call waits for it.
        session.end().await.unwrap();
        marker.wait_until_gone().await;
        let closing = ProcessMarker::new();
        let other = crate::support::hub(&closing);
        let session = other.session("a").await.unwrap();
        session.call("counter", "count", json!({})).await.unwrap();
        let closed = poll_times(times, other.close(TEST_TIMEOUT)).await;
        closing.wait_until_gone().await;
        if ended.is_some() && closed.is_some() {
            return;
        }
    }
}

/// R005, R033.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_concurrent_runs_have_their_own_sessions_and_end() {
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

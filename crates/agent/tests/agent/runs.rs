//! Runs, scopes and sub-agents.

use std::panic::AssertUnwindSafe;

use crate::support::{ProcessMarker, builder, count, hub};
use futures_util::{FutureExt as _, StreamExt as _, future::join_all, stream::FuturesUnordered};
use serde_json::json;
use stayput::{Error, Hub, SubAgent as _};

/// R003, R006, R008, R010, R013, R016, R036, R037: the next run has another server, and no process is left.
#[tokio::test]
async fn calls_of_a_run_share_one_server() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    async fn deep(hub: &Hub) -> u64 {
        count(hub).await
    }
    for _ in 0..2 {
        let last = hub
            .run(async {
                assert_eq!(count(&hub).await, 1);
                assert_eq!(deep(&hub).await, 2);
                // A nested run joins the outer one, and does not end it.
                assert_eq!(hub.run(deep(&hub)).await, 3);
                assert_eq!(marker.processes().len(), 1);
                count(&hub).await
            })
            .await;
        assert_eq!(last, 4);
        assert!(marker.processes().is_empty(), "the server ends with the run");
    }
}

/// R005, R019, E02: fifty concurrent first calls start one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_runs_are_isolated() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let run = |hub: Hub| async move {
        let inner = hub.clone();
        hub.run(async move {
            let mut counted = join_all((0..50).map(|_| count(&inner))).await;
            counted.sort_unstable();
            assert_eq!(counted, (1..=50).collect::<Vec<_>>());
        })
        .await;
    };
    let all: Vec<_> = (0..4).map(|_| tokio::spawn(run(hub.clone()))).collect();
    for one in all {
        one.await.unwrap();
    }
    assert!(marker.processes().is_empty());
}

/// R011, R032.
#[tokio::test]
async fn run_ends_on_error_panic_and_cancellation() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let failed: Result<(), &str> = hub
        .run(async {
            count(&hub).await;
            Err("no")
        })
        .await;
    assert_eq!(failed, Err("no"));
    assert!(marker.processes().is_empty());

    let panicking = hub.run(async {
        count(&hub).await;
        panic!("on purpose");
    });
    assert!(AssertUnwindSafe(panicking).catch_unwind().await.is_err());
    marker.wait_until_gone().await;

    let (began, begun) = tokio::sync::oneshot::channel();
    let task = tokio::spawn({
        let hub = hub.clone();
        async move {
            hub.run(async {
                count(&hub).await;
                began.send(()).unwrap();
                std::future::pending::<()>().await;
            })
            .await;
        }
    });
    begun.await.unwrap();
    assert_eq!(marker.processes().len(), 1);
    task.abort();
    marker.wait_until_gone().await;
}

/// R004, E05.
#[tokio::test]
async fn scope_follows_select_unordered_futures_and_spawn() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    hub.run(async {
        tokio::select! {
            one = count(&hub) => assert_eq!(one, 1),
            () = std::future::pending() => {}
        }
        let mut more: FuturesUnordered<_> = (0..3).map(|_| count(&hub)).collect();
        while more.next().await.is_some() {}
        let carried = hub.clone();
        let spawned = stayput::spawn(async move { count(&carried).await });
        assert_eq!(spawned.await.unwrap(), 5);
        // A call belongs to the scope in which it was created, wherever it is awaited.
        let call = hub.call("counter", "count", json!({}));
        let elsewhere = tokio::spawn(async move { call.await.unwrap().text() });
        assert_eq!(elsewhere.await.unwrap(), "6");
    })
    .await;
    assert!(marker.processes().is_empty());
}

/// E06, R023, R024, R097.
#[tokio::test]
async fn call_outside_any_scope_is_refused_with_a_hint() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let error = hub.call("counter", "count", json!({})).await.unwrap_err();
    assert!(matches!(error, Error::NoSession) && error.to_string().contains("hub.run"));
    let alone = hub.ephemeral();
    assert_eq!(alone.call("counter", "count", json!({})).await.unwrap().text(), "1");
    drop(alone);
    marker.wait_until_gone().await;
}

/// R009, R010, §4.6.
#[tokio::test]
async fn sub_agents_inherit_isolate_or_are_denied() {
    let marker = ProcessMarker::new();
    let hub = builder(&marker).server("other", marker.server()).build().unwrap();
    let other =
        async |hub: &Hub| hub.call("other", "count", json!({})).await.map(|result| result.text());
    hub.run(async {
        assert_eq!(count(&hub).await, 1);
        let (inherited, isolated) = tokio::join!(count(&hub), count(&hub).isolated("counter"));
        assert_eq!((inherited, isolated), (2, 1));
        // The isolated server ends with its sub-agent; that of the run continues.
        crate::support::until("one is left", || marker.processes().len() == 1).await;
        assert_eq!(count(&hub).await, 3);
        let denied = other(&hub).denied("other").isolated("counter").await.unwrap_err();
        assert!(matches!(&denied, Error::ServerDenied { server } if server == "other"), "{denied}");
        // A server that is denied to an agent is denied to its sub-agents.
        let nested = async { other(&hub).isolated("other").await }.denied("other").await;
        assert!(matches!(nested, Err(Error::ServerDenied { .. })));
        assert_eq!(other(&hub).await.unwrap(), "1");
    })
    .await;
    assert!(marker.processes().is_empty());
}

/// E05, R012: each item is taken by another task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_is_one_run_across_tasks() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let inner = hub.clone();
    let pieces = futures_util::stream::unfold((), move |()| {
        let hub = inner.clone();
        async move { Some((count(&hub).await, ())) }
    });
    let mut run = Box::pin(hub.run_stream(pieces.take(3)));
    for expected in 1..=3 {
        let (piece, rest) = tokio::spawn(run.into_future()).await.unwrap();
        assert_eq!(piece, Some(expected));
        run = rest;
    }
    assert_eq!(marker.processes().len(), 1);
    assert_eq!(run.next().await, None);
    marker.wait_until_gone().await;

    // A stream that is dropped half-way also ends; inside a run it joins that run.
    let pieces = || futures_util::stream::once(count(&hub));
    let mut half = Box::pin(hub.run_stream(pieces().chain(futures_util::stream::pending())));
    assert_eq!(half.next().await, Some(1));
    drop(half);
    marker.wait_until_gone().await;
    hub.run(async {
        assert_eq!(count(&hub).await, 1);
        assert_eq!(Box::pin(hub.run_stream(pieces())).next().await, Some(2));
        assert_eq!(count(&hub).await, 3);
    })
    .await;
}

/// R010, R011.
#[tokio::test]
async fn cancelled_run_refuses_tasks_that_keep_its_scope() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let (began, begun) = tokio::sync::oneshot::channel();
    let (go, going) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn({
        let hub = hub.clone();
        async move {
            let inner = hub.clone();
            hub.run(async move {
                count(&inner).await;
                let late = stayput::spawn(async move {
                    going.await.unwrap();
                    inner.call("counter", "count", json!({})).await
                });
                began.send(late).unwrap();
                std::future::pending::<()>().await;
            })
            .await;
        }
    });
    let late = begun.await.unwrap();
    run.abort();
    marker.wait_until_gone().await;
    go.send(()).unwrap();
    assert!(matches!(late.await.unwrap(), Err(Error::SessionEnded { .. })));
    assert!(marker.processes().is_empty());
}

#[tokio::test]
async fn isolated_sub_agent_keeps_a_shared_server_alive() {
    let marker = ProcessMarker::new();
    let shared = stayput::Options {
        isolation: Some(stayput::Isolation::Shared),
        ..stayput::Options::default()
    };
    let hub = Hub::builder().server_with("counter", marker.server(), shared).build().unwrap();
    hub.run(async {
        assert_eq!(count(&hub).await, 1);
        assert_eq!(count(&hub).isolated("counter").await, 2);
        assert_eq!(count(&hub).await, 3);
        assert_eq!(marker.processes().len(), 1);
    })
    .await;
    hub.close(crate::support::TEST_TIMEOUT).await;
    assert!(marker.processes().is_empty());
}

/// R009, R107: an isolated server stays isolated in its own session.
#[tokio::test]
async fn denied_server_stays_denied_in_other_sessions() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    let is_denied = |result: Result<_, Error>| matches!(result, Err(Error::ServerDenied { .. }));
    session
        .run(async {
            async {
                assert!(is_denied(session.call("counter", "count", json!({})).await));
                let again = session.run(async { hub.call("counter", "count", json!({})).await });
                assert!(is_denied(again.await));
                let other = hub.ephemeral();
                assert!(is_denied(other.call("counter", "count", json!({})).await));
                assert!(is_denied(
                    other.run(async { hub.call("counter", "count", json!({})).await }).await
                ));
                assert!(other.tools("counter").await.is_err());
            }
            .denied("counter")
            .await;
            assert_eq!(count(&hub).await, 1);
            // Inherited is the default, also inside an isolated sub-agent.
            assert_eq!(count(&hub).inherited("counter").await, 2);
            let own = async { (count(&hub).await, count(&hub).inherited("counter").await) };
            assert_eq!(own.isolated("counter").await, (1, 2));
            let own = async { session.run(async { count(&hub).await }).await };
            assert_eq!(own.isolated("counter").await, 1);
        })
        .await;
}

/// R034: while the session continues.
#[tokio::test]
async fn isolated_sub_agent_leaves_no_link_and_no_folder() {
    let (marker, folder) = (ProcessMarker::new(), tempfile::tempdir().unwrap());
    let server = marker.server().env("HOME", "${session.dir}");
    let hub = Hub::builder().server("counter", server).folders(folder.path()).build().unwrap();
    let session = hub.session("a").await.unwrap();
    let folders = || {
        let of = folder.path().join("sessions").join(session.id().to_string());
        std::fs::read_dir(of).map_or(0, Iterator::count)
    };
    session
        .run(async {
            assert_eq!(count(&hub).await, 1);
            for _ in 0..3 {
                assert_eq!(count(&hub).isolated("counter").await, 1);
            }
            crate::support::until("one folder is left", || {
                folders() == 1 && marker.processes().len() == 1
            })
            .await;
            assert_eq!(count(&hub).await, 2);
        })
        .await;
    session.end().await.unwrap();
    assert_eq!(folders(), 0);
}

//! Runs: sessions that follow the task.

use std::panic::AssertUnwindSafe;

use crate::world::{Token, builder, count, hub};
use futures_util::{FutureExt as _, StreamExt as _, future::join_all, stream::FuturesUnordered};
use serde_json::json;
use stayput::{Error, Hub, SubAgent as _};

/// R003, R006, R008, R010, R013, R016, R036, R037: all calls of a run, however deep, are on one server; the next run has
/// another one; nothing is left.
#[tokio::test]
async fn a_run_keeps_its_state_and_no_other() {
    let token = Token::new();
    let hub = hub(&token);
    async fn deep(hub: &Hub) -> u64 {
        count(hub).await
    }
    for _ in 0..2 {
        let last = hub
            .run(async {
                assert_eq!(count(&hub).await, 1);
                assert_eq!(deep(&hub).await, 2);
                // A run inside a run joins it, and does not end it.
                assert_eq!(hub.run(deep(&hub)).await, 3);
                assert_eq!(token.alive().len(), 1);
                count(&hub).await
            })
            .await;
        assert_eq!(last, 4);
        assert!(token.alive().is_empty(), "the run is over, so is its server");
    }
}

/// R005, R019, E02, E04: two runs at once never meet, and fifty first calls start one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_at_once_never_meet() {
    let token = Token::new();
    let hub = hub(&token);
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
    assert!(token.alive().is_empty());
}

/// R011, R032: however a run ends, its server ends.
#[tokio::test]
async fn a_run_ends_on_error_panic_and_cancellation() {
    let token = Token::new();
    let hub = hub(&token);
    let failed: Result<(), &str> = hub
        .run(async {
            count(&hub).await;
            Err("no")
        })
        .await;
    assert_eq!(failed, Err("no"));
    assert!(token.alive().is_empty());

    let panicking = hub.run(async {
        count(&hub).await;
        panic!("on purpose");
    });
    assert!(AssertUnwindSafe(panicking).catch_unwind().await.is_err());
    token.gone().await;

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
    assert_eq!(token.alive().len(), 1);
    task.abort();
    token.gone().await;
}

/// R004, E05: the scope goes with `select!`, unordered futures, and a task that is spawned with it.
#[tokio::test]
async fn a_scope_goes_where_the_work_goes() {
    let token = Token::new();
    let hub = hub(&token);
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
        // A call belongs to the session in which it was written, wherever it is awaited.
        let call = hub.call("counter", "count", json!({}));
        let elsewhere = tokio::spawn(async move { call.await.unwrap().text() });
        assert_eq!(elsewhere.await.unwrap(), "6");
    })
    .await;
    assert!(token.alive().is_empty());
}

/// E06, R023, R024, R097: a call outside any scope is an error that says what to do.
#[tokio::test]
async fn a_call_outside_any_scope_is_an_error() {
    let token = Token::new();
    let hub = hub(&token);
    let error = hub.call("counter", "count", json!({})).await.unwrap_err();
    assert!(matches!(error, Error::NoSession) && error.to_string().contains("hub.run"));
    let alone = hub.ephemeral();
    assert_eq!(alone.call("counter", "count", json!({})).await.unwrap().text(), "1");
    drop(alone);
    token.gone().await;
}

/// R009, R010, §4.6: sub-agents inherit, isolate or are denied, each in one line.
#[tokio::test]
async fn sub_agents_share_by_choice() {
    let token = Token::new();
    let hub = builder(&token).server("other", token.server()).build().unwrap();
    let other =
        async |hub: &Hub| hub.call("other", "count", json!({})).await.map(|result| result.text());
    hub.run(async {
        assert_eq!(count(&hub).await, 1);
        let (inherited, isolated) = tokio::join!(count(&hub), count(&hub).isolated("counter"));
        assert_eq!((inherited, isolated), (2, 1));
        // Its own server ended with it; that of the run goes on.
        crate::world::until("one is left", || token.alive().len() == 1).await;
        assert_eq!(count(&hub).await, 3);
        let denied = other(&hub).denied("other").isolated("counter").await.unwrap_err();
        assert!(matches!(&denied, Error::Denied { server } if server == "other"), "{denied}");
        // What is denied to an agent is denied to its sub-agents.
        let nested = async { other(&hub).isolated("other").await }.denied("other").await;
        assert!(matches!(nested, Err(Error::Denied { .. })));
        assert_eq!(other(&hub).await.unwrap(), "1");
    })
    .await;
    assert!(token.alive().is_empty());
}

/// E05, R012: a run that gives its output piece by piece, each piece taken by another task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_a_run() {
    let token = Token::new();
    let hub = hub(&token);
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
    assert_eq!(token.alive().len(), 1);
    assert_eq!(run.next().await, None);
    token.gone().await;

    // Dropped half-way, it ends, too; and inside a run it belongs to that one.
    let pieces = || futures_util::stream::once(count(&hub));
    let mut half = Box::pin(hub.run_stream(pieces().chain(futures_util::stream::pending())));
    assert_eq!(half.next().await, Some(1));
    drop(half);
    token.gone().await;
    hub.run(async {
        assert_eq!(count(&hub).await, 1);
        assert_eq!(Box::pin(hub.run_stream(pieces())).next().await, Some(2));
        assert_eq!(count(&hub).await, 3);
    })
    .await;
}

/// R010, R011: a run that is cancelled is over, though a task of its own still has the scope.
#[tokio::test]
async fn a_cancelled_run_is_over_for_everybody() {
    let token = Token::new();
    let hub = hub(&token);
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
    token.gone().await;
    go.send(()).unwrap();
    assert!(matches!(late.await.unwrap(), Err(Error::Ended { .. })));
    assert!(token.alive().is_empty());
}

/// A sub-agent that is isolated on a server that all share ends nothing of others.
#[tokio::test]
async fn what_all_share_outlives_a_sub_agent() {
    let token = Token::new();
    let shared = stayput::Options {
        isolation: Some(stayput::Isolation::Shared),
        ..stayput::Options::default()
    };
    let hub = Hub::builder().server_with("counter", token.server(), shared).build().unwrap();
    hub.run(async {
        assert_eq!(count(&hub).await, 1);
        assert_eq!(count(&hub).isolated("counter").await, 2);
        assert_eq!(count(&hub).await, 3);
        assert_eq!(token.alive().len(), 1);
    })
    .await;
    hub.close(crate::world::LONG).await;
    assert!(token.alive().is_empty());
}

/// R009, R107: what is denied stays denied in whatever session a sub-agent finds its way to, and what is
/// isolated stays so in its own.
#[tokio::test]
async fn what_is_denied_stays_denied() {
    let token = Token::new();
    let hub = hub(&token);
    let session = hub.session("a").await.unwrap();
    let is_denied = |result: Result<_, Error>| matches!(result, Err(Error::Denied { .. }));
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
            // Said or not, it shares; and within what is isolated, what is isolated.
            assert_eq!(count(&hub).inherited("counter").await, 2);
            let own = async { (count(&hub).await, count(&hub).inherited("counter").await) };
            assert_eq!(own.isolated("counter").await, (1, 2));
            let own = async { session.run(async { count(&hub).await }).await };
            assert_eq!(own.isolated("counter").await, 1);
        })
        .await;
}

/// R034: a sub-agent that was isolated leaves neither a link nor a folder, though the session goes on.
#[tokio::test]
async fn a_sub_agent_leaves_no_folder() {
    let (token, folder) = (Token::new(), tempfile::tempdir().unwrap());
    let server = token.server().env("HOME", "${session.dir}");
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
            crate::world::until("one folder is left", || {
                folders() == 1 && token.alive().len() == 1
            })
            .await;
            assert_eq!(count(&hub).await, 2);
        })
        .await;
    session.end().await.unwrap();
    assert_eq!(folders(), 0);
}

//! Loss of state: never silent, told once to each scope, and said once.

use std::time::Duration;

use crate::support::{TEST_TIMEOUT, ProcessMarker, builder, hub};
use futures_util::future::join_all;
use serde_json::json;
use stayput::{Error, Event, Expiry, Generation, Hub, Isolation, OnLoss, Options, Session, SessionStatus};

async fn next_on(session: &Session, server: &str) -> Result<u64, Error> {
    let counted = session.call(server, "count", json!({})).await?;
    Ok(counted.text().parse().unwrap())
}

async fn next(session: &Session) -> Result<u64, Error> {
    next_on(session, "counter").await
}

async fn wait_for_exit(session: &Session) {
    let dead = || matches!(session.status("counter").unwrap(), SessionStatus::Closed { reason: "exited" });
    crate::support::wait_until("the death is noticed", dead).await;
}

fn told(result: Result<u64, Error>) -> (Option<Generation>, Option<&'static str>, bool) {
    let error = result.unwrap_err();
    (error.generation(), error.reason(), error.may_have_run())
}

/// §4.7, E38: calls of one scope that began before it was told are all told, unexecuted; the next one runs.
/// However many were told, it is said once.
#[tokio::test]
async fn parallel_calls_are_all_told_of_one_loss() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    next(&session).await.unwrap();
    let mut events = hub.events();
    marker.kill_processes();
    wait_for_exit(&session).await;
    for result in join_all((0..5).map(|_| next(&session))).await {
        assert_eq!(told(result), (Some(Generation(1)), Some("exited"), false));
    }
    assert_eq!(next(&session).await.unwrap(), 1, "none of them ran");
    session.end().await.unwrap();
    let (mut lost, mut linked) = (0, 0);
    loop {
        match events.next().await.unwrap() {
            Event::Lost { server, .. } => {
                assert_eq!(server.as_deref(), Some("counter"));
                lost += 1;
            }
            Event::Linked { .. } => linked += 1,
            Event::Ended { session: id } => {
                assert_eq!(id, session.id());
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((lost, linked), (1, 1));
}

/// §4.5, §4.7: the loss of what several sessions share is told to each of them, also to one that is opened
/// again by its name, as each request of a web server does.
#[tokio::test]
async fn a_shared_loss_is_told_to_each_session() {
    let marker = ProcessMarker::new();
    for isolation in [Isolation::Shared, Isolation::PerOwner] {
        let options = Options { isolation: Some(isolation), ..Options::default() };
        let hub = Hub::builder().server_with("counter", marker.server(), options).build().unwrap();
        assert_eq!(next(&hub.session("a").await.unwrap()).await.unwrap(), 1);
        assert_eq!(next(&hub.session("b").await.unwrap()).await.unwrap(), 2);
        marker.kill_processes();
        let a = hub.session("a").await.unwrap();
        wait_for_exit(&a).await;
        assert!(next(&a).await.unwrap_err().is_state_lost());
        assert_eq!(next(&a).await.unwrap(), 1);
        assert!(next(&hub.session("b").await.unwrap()).await.unwrap_err().is_state_lost());
        assert_eq!(next(&hub.session("b").await.unwrap()).await.unwrap(), 2);
        // Who never used it has nothing to forget.
        assert_eq!(next(&hub.session("c").await.unwrap()).await.unwrap(), 3);
        hub.close(TEST_TIMEOUT).await;
        assert!(marker.processes().is_empty());
    }
}

/// R071, E33: a session that expired is closed, and lives again with everything lost: that is told once, of no
/// server in particular.
#[tokio::test]
async fn the_loss_of_a_whole_session_is_told_once() {
    let marker = ProcessMarker::new();
    let hub = builder(&marker)
        .server("other", marker.server())
        .expiry(Expiry::idle(Duration::from_millis(300)))
        .build()
        .unwrap();
    let session = hub.session("a").await.unwrap();
    next(&session).await.unwrap();
    next_on(&session, "other").await.unwrap();
    let mut events = hub.events();
    while !matches!(events.next().await.unwrap(), Event::Ended { .. }) {}
    marker.wait_until_gone().await;
    session.extend(Duration::from_secs(600)).await.unwrap();
    let lost = next_on(&session, "other").await.unwrap_err();
    let whole = lost.state_lost().unwrap();
    assert_eq!((whole.server(), whole.reason()), (None, "expired"), "{lost}");
    assert!(lost.to_string().contains("everything"), "{lost}");
    assert_eq!(next_on(&session, "other").await.unwrap(), 1);
    assert_eq!(next(&session).await.unwrap(), 1, "it was told already");
}

/// §4.2: who takes over the name of a session that was ended is told that something was lost.
#[tokio::test]
async fn a_name_remembers_that_something_was_there() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let first = hub.session("a").await.unwrap();
    next(&first).await.unwrap();
    first.end().await.unwrap();
    let second = hub.session("a").await.unwrap();
    assert_eq!(told(next(&second).await).1, Some("ended"));
    assert_eq!(next(&second).await.unwrap(), 1);
}

/// R125, §4.7: with `on_loss = restart` what surely did not run is made once more.
#[tokio::test]
async fn a_loss_can_be_gone_on_from() {
    let marker = ProcessMarker::new();
    let hub = builder(&marker).on_loss("counter", OnLoss::Restart).build().unwrap();
    let session = hub.session("a").await.unwrap();
    next(&session).await.unwrap();
    marker.kill_processes();
    wait_for_exit(&session).await;
    let again = session.call("counter", "count", json!({})).await.unwrap();
    assert!(again.after_loss() && again.text() == "1");
    hub.on_loss("counter", OnLoss::Error).unwrap();
    session.restart("counter").await.unwrap();
    assert!(next(&session).await.unwrap_err().is_state_lost());
    let wrong = builder(&marker).on_loss("cuonter", OnLoss::Restart).build().unwrap_err();
    assert!(wrong.to_string().contains("cuonter"), "{wrong}");
}

/// E28, R074: a server that fails is left alone for a while, and its status says so.
#[tokio::test]
async fn a_server_that_fails_is_left_alone() {
    let marker = ProcessMarker::new();
    let broken = marker.server().args(["--exit-at-once", "1"]);
    let hub = Hub::builder().server("counter", broken).build().unwrap();
    let session = hub.session("a").await.unwrap();
    assert_eq!(next(&session).await.unwrap_err().kind(), "server_failed");
    assert_eq!(next(&session).await.unwrap_err().kind(), "server_failed");
    let status = session.status("counter").unwrap();
    assert!(matches!(status, SessionStatus::BackingOff { .. } | SessionStatus::Unlinked), "{status:?}");
    assert!(session.servers().is_empty());
}

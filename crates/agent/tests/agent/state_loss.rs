//! Loss of state: reported once to each scope, with one event.

use std::time::Duration;

use crate::support::{ProcessMarker, TEST_TIMEOUT, builder, hub};
use futures_util::future::join_all;
use serde_json::json;
use stayput::{
    Error, Event, ExitStatus, Expiry, Generation, Hub, Isolation, OnLoss, Options, Session,
    SessionStatus,
};

async fn count_on_server(session: &Session, server: &str) -> Result<u64, Error> {
    let counted = session.call(server, "count", json!({})).await?;
    Ok(counted.text().parse().unwrap())
}

async fn count_on(session: &Session) -> Result<u64, Error> {
    count_on_server(session, "counter").await
}

async fn wait_for_exit(session: &Session) {
    let dead =
        || matches!(session.status("counter").unwrap(), SessionStatus::Closed { reason: "exited" });
    crate::support::until("the exit is noticed", dead).await;
}

fn loss_details(result: Result<u64, Error>) -> (Option<Generation>, Option<&'static str>, bool) {
    let error = result.unwrap_err();
    (error.generation(), error.reason(), error.may_have_run())
}

/// §4.7, E38: calls of one scope that began before the report all fail unexecuted; the next call runs.
#[tokio::test]
async fn loss_is_reported_to_all_concurrent_calls_and_sends_one_event() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    count_on(&session).await.unwrap();
    let mut events = hub.events();
    marker.kill_processes();
    wait_for_exit(&session).await;
    for result in join_all((0..5).map(|_| count_on(&session))).await {
        assert_eq!(loss_details(result), (Some(Generation(1)), Some("exited"), false));
    }
    assert_eq!(count_on(&session).await.unwrap(), 1, "no failed call ran");
    session.end().await.unwrap();
    let (mut lost, mut linked) = (0, 0);
    loop {
        match events.next().await.unwrap() {
            Event::Lost { server, name, exit_status, .. } => {
                assert_eq!((server.as_deref(), name.as_deref()), (Some("counter"), Some("a")));
                assert_eq!(exit_status, Some(ExitStatus::Signal(9)));
                lost += 1;
            }
            Event::Linked { .. } => linked += 1,
            Event::Called { .. } => {}
            Event::Ended { session: id, name } => {
                assert_eq!((id, name.as_deref()), (session.id(), Some("a")));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((lost, linked), (1, 1));
}

/// §4.5, §4.7: also to a session that is opened again by its name, as each request of a web server does.
#[tokio::test]
async fn loss_of_a_shared_link_is_reported_to_each_session() {
    let marker = ProcessMarker::new();
    for isolation in [Isolation::Shared, Isolation::PerOwner] {
        let options = Options { isolation: Some(isolation), ..Options::default() };
        let hub = Hub::builder().server_with("counter", marker.server(), options).build().unwrap();
        assert_eq!(count_on(&hub.session("a").await.unwrap()).await.unwrap(), 1);
        assert_eq!(count_on(&hub.session("b").await.unwrap()).await.unwrap(), 2);
        marker.kill_processes();
        let a = hub.session("a").await.unwrap();
        wait_for_exit(&a).await;
        assert!(count_on(&a).await.unwrap_err().is_state_lost());
        assert_eq!(count_on(&a).await.unwrap(), 1);
        assert!(count_on(&hub.session("b").await.unwrap()).await.unwrap_err().is_state_lost());
        assert_eq!(count_on(&hub.session("b").await.unwrap()).await.unwrap(), 2);
        // A session that never used the server gets no report.
        assert_eq!(count_on(&hub.session("c").await.unwrap()).await.unwrap(), 3);
        hub.close(TEST_TIMEOUT).await;
        assert!(marker.processes().is_empty());
    }
}

/// R071, E33: the report names no server.
#[tokio::test]
async fn loss_of_an_expired_session_is_reported_once() {
    let marker = ProcessMarker::new();
    let hub = builder(&marker)
        .server("other", marker.server())
        .expiry(Expiry::idle(Duration::from_millis(300)))
        .build()
        .unwrap();
    let session = hub.session("a").await.unwrap();
    count_on(&session).await.unwrap();
    count_on_server(&session, "other").await.unwrap();
    let mut events = hub.events();
    while !matches!(events.next().await.unwrap(), Event::Ended { .. }) {}
    marker.wait_until_gone().await;
    session.extend(Duration::from_secs(600)).await.unwrap();
    let lost = count_on_server(&session, "other").await.unwrap_err();
    let whole = lost.state_lost().unwrap();
    assert_eq!((whole.server(), whole.reason()), (None, "expired"), "{lost}");
    assert!(lost.to_string().contains("everything"), "{lost}");
    assert_eq!(count_on_server(&session, "other").await.unwrap(), 1);
    assert_eq!(count_on(&session).await.unwrap(), 1, "the loss was already reported");
    marker.kill_processes();
    wait_for_exit(&session).await;
    assert_eq!(
        loss_details(count_on(&session).await).1,
        Some("exited"),
        "a loss after the revival"
    );
}

/// R071, E33: a web server has a new object for each request.
#[tokio::test]
async fn expiry_is_reported_on_a_new_object() {
    let marker = ProcessMarker::new();
    let idle = Expiry::idle(Duration::from_millis(300));
    let hub = builder(&marker).expiry(idle).build().unwrap();
    assert_eq!(count_on(&hub.session("a").await.unwrap()).await.unwrap(), 1);
    let mut events = hub.events();
    while !matches!(events.next().await.unwrap(), Event::Ended { .. }) {}
    let again = hub.session("a").await.unwrap();
    again.extend(TEST_TIMEOUT).await.unwrap();
    assert_eq!(loss_details(count_on(&again).await).1, Some("expired"));
    assert_eq!(count_on(&hub.session("a").await.unwrap()).await.unwrap(), 1);
}

/// §4.2: the owner knows that it ended the session.
#[tokio::test]
async fn name_of_an_ended_session_starts_fresh() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let (first, other) = (hub.session("a").await.unwrap(), hub.session("a").await.unwrap());
    assert_eq!(count_on(&first).await.unwrap(), 1);
    first.end().await.unwrap();
    let second = hub.session("a").await.unwrap();
    assert_eq!(count_on(&second).await.unwrap(), 1, "no error before it");
    let old = count_on(&other).await.unwrap_err();
    assert!(matches!(old, Error::SessionEnded { .. }), "an old object does not join: {old}");
}

/// The message says how the process ended; stderr is there for the operator only.
#[tokio::test]
async fn loss_tells_how_the_process_ended() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    count_on(&session).await.unwrap();
    marker.kill_processes();
    wait_for_exit(&session).await;
    let lost = count_on(&session).await.unwrap_err();
    assert_eq!(lost.state_lost().unwrap().exit_status(), Some(ExitStatus::Signal(9)));
    assert!(lost.to_string().contains("(exited: its process was killed by signal 9"), "{lost}");
}

/// E28: calls wait for a short backoff, and get only the losses.
#[tokio::test]
async fn calls_wait_while_a_crashing_server_backs_off() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    let mut backed_off = false;
    for _ in 0..4 {
        assert_eq!(count_on(&session).await.unwrap(), 1);
        let lost = session.call("counter", "crash", json!({})).await.unwrap_err();
        assert!(lost.is_state_lost(), "{lost}");
        let status = session.status("counter").unwrap();
        backed_off |= matches!(status, SessionStatus::BackingOff { .. });
    }
    assert!(backed_off, "the server never backed off");
}

/// R125, §4.7.
#[tokio::test]
async fn on_loss_restart_repeats_calls_that_did_not_run() {
    let marker = ProcessMarker::new();
    let hub = builder(&marker).on_loss("counter", OnLoss::Restart).build().unwrap();
    let session = hub.session("a").await.unwrap();
    count_on(&session).await.unwrap();
    marker.kill_processes();
    wait_for_exit(&session).await;
    let again = session.call("counter", "count", json!({})).await.unwrap();
    assert!(again.after_loss() && again.text() == "1");
    hub.on_loss("counter", OnLoss::Error).unwrap();
    session.restart("counter").await.unwrap();
    assert!(count_on(&session).await.unwrap_err().is_state_lost());
    let wrong = builder(&marker).on_loss("cuonter", OnLoss::Restart).build().unwrap_err();
    assert!(wrong.to_string().contains("cuonter"), "{wrong}");
}

/// E28: an error that passes says when to try again.
#[tokio::test]
async fn error_of_a_backoff_says_when_to_try_again() {
    let marker = ProcessMarker::new();
    let broken = marker.server().args(["--exit-at-once", "1"]);
    let hub = Hub::builder().server("counter", broken).build().unwrap();
    let session = hub.session("a").await.unwrap();
    // The pause grows with each failure, until a call does not wait for its end any more.
    for _ in 0..10 {
        let failed = count_on(&session).await.unwrap_err();
        assert_eq!(failed.kind(), "server_failed", "{failed}");
        if let Some(pause) = failed.retry_after() {
            let told = format!("is tried again in {} s", pause.as_secs() + 1);
            assert!(failed.to_string().contains(&told), "{failed}");
            return;
        }
    }
    panic!("no error said when to try again");
}

/// E28, R074.
#[tokio::test]
async fn failing_server_backs_off() {
    let marker = ProcessMarker::new();
    let broken = marker.server().args(["--exit-at-once", "1"]);
    let hub = Hub::builder().server("counter", broken).build().unwrap();
    let session = hub.session("a").await.unwrap();
    assert_eq!(count_on(&session).await.unwrap_err().kind(), "server_failed");
    assert_eq!(count_on(&session).await.unwrap_err().kind(), "server_failed");
    let status = session.status("counter").unwrap();
    assert!(
        matches!(status, SessionStatus::BackingOff { .. } | SessionStatus::Unlinked),
        "{status:?}"
    );
    assert!(session.servers().is_empty());
}

//! Edge cases: nothing used, everything at once, wrong order, limits reached.

use std::time::Duration;

use crate::support::{ProcessMarker, TEST_TIMEOUT, builder, count, hub};
use futures_util::future::join_all;
use serde_json::json;
use stayput::{Error, Event, Expiry, Hub, Limits, Options, Session, SessionStatus, Stdio};
use stayput_testkit::program;

async fn count_on(session: &Session) -> Result<u64, Error> {
    let counted = session.call("counter", "count", json!({})).await?;
    Ok(counted.text().parse().unwrap())
}

/// R001, R035, E03: also if the hub was closed inside the run.
#[tokio::test]
async fn scope_is_cleared_after_a_run() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let current = || stayput::ffi::current().and_then(|scope| scope.session());
    assert_eq!(current(), None);
    let session = hub.session("a").await.unwrap();
    session.run(async { assert_eq!(current(), Some(session.id())) }).await;
    assert_eq!(current(), None);
    hub.run(async {
        count(&hub).await;
        hub.close(TEST_TIMEOUT).await;
        assert!(current().is_some());
    })
    .await;
    assert_eq!(current(), None);
    assert!(marker.processes().is_empty());
    assert_eq!(hub.call("counter", "count", json!({})).await.unwrap_err().kind(), "no_session");
}

/// R025, R031, R122: also if it lists tools.
#[tokio::test]
async fn run_without_calls_opens_nothing() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let mut events = hub.events();
    hub.run(async {}).await;
    hub.run(async { assert!(!hub.tools("counter").await.unwrap().is_empty()) }).await;
    drop(hub.ephemeral());
    let report = hub.close(TEST_TIMEOUT).await;
    assert_eq!((report.opened, report.sessions, report.links), (0, 0, 0));
    drop(hub);
    while let Some(event) = events.next().await {
        assert!(!matches!(event, Event::Linked { .. }), "{event:?}");
    }
    marker.wait_until_gone().await;
}

/// R018, R021, R026, R066.
#[tokio::test]
async fn each_server_of_a_run_has_its_own_link() {
    let marker = ProcessMarker::new();
    let hub = builder(&marker).server("other", marker.server()).build().unwrap();
    hub.run(async {
        assert_eq!((count(&hub).await, count(&hub).await), (1, 2));
        assert_eq!(hub.call("other", "count", json!({})).await.unwrap().text(), "1");
        assert!(hub.tools("other").await.unwrap().iter().any(|it| it.name == "count"));
        assert_eq!(marker.processes().len(), 2);
    })
    .await;
    assert!(marker.processes().is_empty());
}

/// R029.
#[tokio::test]
async fn start_error_shows_stderr() {
    let marker = ProcessMarker::new();
    let broken = marker.apply(Stdio::new("sh").args(["-c", "echo no such licence >&2; exit 3"]));
    let hub = Hub::builder().server("counter", broken).build().unwrap();
    let error = count_on(&hub.session("a").await.unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), "server_failed");
    assert!(error.to_string().contains("no such licence"), "{error}");
    assert!(!error.may_have_run());
}

/// E01, E36, R014, R106: from any task, all at once, also with a server that refuses to exit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_end_in_any_order_under_one_deadline() {
    let marker = ProcessMarker::new();
    let stubborn = marker.server().args(["--ignore-eof", "--ignore-term"]);
    let hub = hub(&marker);
    hub.add_server("stubborn", stubborn, Options::default()).await.unwrap();
    let names: Vec<_> = (0..8).map(|number| number.to_string()).collect();
    let sessions = join_all(names.iter().map(|name| hub.session(name))).await;
    let mut sessions: Vec<_> = sessions.into_iter().map(Result::unwrap).collect();
    for session in &sessions {
        count_on(session).await.unwrap();
    }
    sessions.reverse();
    sessions[3].bind("stubborn").await.unwrap();
    let ends = sessions.drain(..3).map(|it| tokio::spawn(async move { it.end().await }));
    for end in join_all(ends).await {
        end.unwrap().unwrap();
    }
    assert_eq!(marker.processes().len(), 6);
    let before = tokio::time::Instant::now();
    let report = hub.close(Duration::from_secs(30)).await;
    assert!(before.elapsed() < Duration::from_secs(30), "one deadline for all: {report:?}");
    assert_eq!((report.sessions, report.links), (5, 6));
    marker.wait_until_gone().await;
}

/// E20, R071, invariant 7.
#[tokio::test]
async fn call_in_flight_prevents_expiry() {
    let marker = ProcessMarker::new();
    let hub = builder(&marker).expiry(Expiry::idle(Duration::from_millis(200))).build().unwrap();
    let session = hub.session("a").await.unwrap();
    // Longer than the maintenance interval.
    let slow = session.call("counter", "slow", json!({ "ms": 7_000, "steps": 1 })).await;
    assert!(!slow.unwrap().is_error());
    marker.wait_until_gone().await;
    assert!(matches!(hub.find("a").await, Err(Error::UnknownSession)));
}

/// E27, R105.
#[tokio::test]
async fn replaced_server_is_closed_and_reports_a_loss() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    count_on(&session).await.unwrap();
    let old = marker.processes();
    let other = marker.server().env("X", "other");
    hub.add_server("counter", other.clone(), Options::default()).await.unwrap();
    assert!(marker.processes().is_empty(), "{old:?}");
    assert_eq!(count_on(&session).await.unwrap_err().reason(), Some("reconfigured"));
    assert_eq!(count_on(&session).await.unwrap(), 1);
    // Adding the same server again changes nothing.
    hub.add_server("counter", other, Options::default()).await.unwrap();
    assert_eq!(count_on(&session).await.unwrap(), 2);
    assert!(hub.remove_server("counter").await);
    assert!(marker.processes().is_empty());
    assert_eq!(count_on(&session).await.unwrap_err().kind(), "unknown_server");
    // An entry of a configuration file, with its `stayput` object; also for an agent.
    let entry = json!({ "command": program("stayput-testserver"), "args": ["stdio"], "stayput": { "tools": { "deny": ["count"] } } });
    for hub in [&hub, &hub.agent("ann").unwrap()] {
        assert!(hub.add_configured("counter", &entry, "<entry>").await.unwrap().is_empty());
        let denied = count_on(&hub.session("b").await.unwrap()).await.unwrap_err();
        assert_eq!(denied.kind(), "denied", "{denied}");
    }
    let wrong = hub.add_configured("counter", json!({ "args": [] }), "<entry>").await.unwrap_err();
    assert_eq!(wrong.kind(), "config", "{wrong}");
    let off = json!({ "command": "x", "disabled": true });
    let off = hub.add_configured("counter", off, "<entry>").await.unwrap_err().to_string();
    assert!(off.contains("it is disabled"), "{off}");
    let reserved =
        hub.add_server("a_byagent_b", marker.server(), Options::default()).await.unwrap_err();
    assert_eq!(reserved.kind(), "invalid_input", "{reserved}");
}

/// R077, R130, R132, R133.
#[tokio::test]
async fn restart_all_closes_all_links() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    // Nothing to restart yet.
    session.restart_all().await.unwrap();
    assert_eq!(session.status("counter").unwrap(), SessionStatus::Unlinked);
    count_on(&session).await.unwrap();
    session.restart_all().await.unwrap();
    assert!(marker.processes().is_empty() && session.servers().is_empty());
    assert_eq!(count_on(&session).await.unwrap_err().reason(), Some("restarted"));
    assert_eq!(count_on(&session).await.unwrap(), 1);
}

/// E35, §4.2: its next call reports the loss.
#[tokio::test]
async fn longest_idle_session_is_evicted_at_the_limit() {
    let marker = ProcessMarker::new();
    let limits = Limits { processes: 2, ..Limits::default() };
    let hub = builder(&marker).limits(limits).build().unwrap();
    let sessions = join_all(["a", "b", "c"].map(|name| hub.session(name))).await;
    let sessions: Vec<_> = sessions.into_iter().map(Result::unwrap).collect();
    for session in &sessions {
        assert_eq!(count_on(session).await.unwrap(), 1);
    }
    crate::support::until("two are left", || marker.processes().len() == 2).await;
    assert_eq!(sessions[0].status("counter").unwrap(), SessionStatus::Closed { reason: "evicted" });
    assert_eq!(count_on(&sessions[0]).await.unwrap_err().reason(), Some("evicted"));
    assert_eq!(count_on(&sessions[0]).await.unwrap(), 1);
    assert_eq!(count_on(&sessions[2]).await.unwrap(), 2);
}

/// R098, R131.
#[tokio::test]
async fn prompts_resources_and_completion_work_on_hub_and_session() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    let prompts = session.prompts("counter").await.unwrap();
    let resources = session.resources("counter").await.unwrap();
    let read = session.read("counter", &resources[0].uri).await.unwrap();
    assert!(read.raw().contains("contents"));
    let got = session.prompt("counter", &prompts[0].name, json!({})).await.unwrap();
    assert!(got.raw().contains("messages"));
    session.resource_templates("counter").await.unwrap();
    let reference = json!({ "type": "ref/prompt", "name": prompts[0].name });
    match session.complete("counter", &reference, ("x", "y")).await {
        Ok(reply) => assert!(reply.raw().contains("completion")),
        Err(error) => assert_eq!(error.kind(), "protocol_error", "{error}"),
    }
    session
        .run(async {
            assert_eq!(hub.prompts("counter").await.unwrap(), prompts);
            assert_eq!(hub.resources("counter").await.unwrap(), resources);
            hub.read("counter", &resources[0].uri).await.unwrap();
        })
        .await;
    assert_eq!(marker.processes().len(), 1);
}

/// R016, R103.
#[tokio::test]
async fn sse_server_keeps_its_state() {
    let server = stayput_testkit::mcp::TestServer::sse(&["--era", "legacy"]).await;
    let sse = stayput::TransportConfig::Sse(stayput::Http::new(server.url()));
    let hub = Hub::builder().server("counter", sse).build().unwrap();
    let counts = hub.run(async { [count(&hub).await, count(&hub).await] }).await;
    assert_eq!((counts, hub.run(count(&hub)).await), ([1, 2], 1));
    hub.close(TEST_TIMEOUT).await;
}

/// §3: and the session stays usable.
#[tokio::test]
async fn dropped_call_is_cancelled_once() {
    let (marker, folder) = (ProcessMarker::new(), tempfile::tempdir().unwrap());
    let log = folder.path().join("log");
    let server = marker.server().args(["--log", log.to_str().unwrap()]);
    let hub = Hub::builder().server("counter", server).build().unwrap();
    let session = hub.session("a").await.unwrap();
    assert_eq!(count_on(&session).await.unwrap(), 1);
    let count_in_log = |what: &str| std::fs::read_to_string(&log).unwrap().matches(what).count();
    let slow = session.call("counter", "slow", json!({ "ms": 60_000 }));
    tokio::select! {
        done = slow.into_future() => panic!("{done:?}"),
        () = crate::support::until("the call arrives", || count_in_log(r#""slow""#) == 1) => {}
    }
    crate::support::until("it is cancelled", || count_in_log("notifications/cancelled") == 1).await;
    assert_eq!(count_on(&session).await.unwrap(), 2);
    assert_eq!((count_in_log("notifications/cancelled"), count_in_log(r#""slow""#)), (1, 1));
}

/// R021, R143: concurrent first requests open one link.
#[tokio::test]
async fn every_request_opens_the_link_and_is_refused_after_the_end() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let known = hub.session("known").await.unwrap();
    let prompt = known.prompts("counter").await.unwrap()[0].name.clone();
    let uri = known.resources("counter").await.unwrap()[0].uri.clone();
    known.end().await.unwrap();
    marker.wait_until_gone().await;
    let reference = json!({ "type": "ref/prompt", "name": prompt });
    let request = async |session: &Session, kind: usize| match kind {
        0 => session.call("counter", "count", json!({})).await.map(drop),
        1 => session.call("counter", "count", json!({})).raw().await.map(drop),
        2 => session.prompt("counter", &prompt, json!({})).await.map(drop),
        3 => session.read("counter", &uri).await.map(drop),
        4 => match session.complete("counter", &reference, ("x", "y")).await {
            Err(Error::ProtocolError { .. }) => Ok(()),
            completed => completed.map(drop),
        },
        5 => session.bind("counter").await.map(drop),
        _ => session.extend(Duration::from_secs(60)).await,
    };
    for first in 0..6 {
        let session = hub.session(&format!("first {first}")).await.unwrap();
        assert_eq!(session.status("counter").unwrap(), SessionStatus::Unlinked);
        request(&session, first).await.unwrap();
        assert!(
            matches!(session.status("counter").unwrap(), SessionStatus::Live { .. }),
            "{first}"
        );
        join_all((0..7).map(|kind| request(&session, kind)))
            .await
            .into_iter()
            .for_each(Result::unwrap);
        assert_eq!(marker.processes().len(), 1, "{first}");
        session.end().await.unwrap();
        for kind in 0..7 {
            let refused = request(&session, kind).await.unwrap_err();
            assert!(matches!(refused, Error::SessionEnded { .. }), "{first} {kind}: {refused}");
        }
        assert!(marker.processes().is_empty());
    }
}

/// A call that is awaited again after its end is refused, and does not hang.
#[tokio::test]
async fn ended_call_is_refused() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    let mut call = session.call("counter", "count", json!({}));
    assert_eq!((&mut call).await.unwrap().text(), "1");
    let again = tokio::time::timeout(TEST_TIMEOUT, &mut call).await.expect("no hang");
    assert!(matches!(again, Err(Error::InvalidInput(_))), "{again:?}");
    assert_eq!(count_on(&session).await.unwrap(), 2, "it ran once");
}

/// R027, R028, R107, R131: the Python binding and frameworks rely on it.
#[test]
fn handles_are_send_and_sync() {
    fn assert_shareable<T: Clone + Send + Sync + 'static>() {}
    fn assert_send<T: Send + 'static>() {}
    assert_shareable::<Hub>();
    assert_shareable::<Session>();
    assert_shareable::<Error>();
    assert_shareable::<stayput::ToolResult>();
    assert_shareable::<stayput::Ticket>();
    assert_send::<stayput::ToolCall>();
    assert_send::<stayput::Events>();
}

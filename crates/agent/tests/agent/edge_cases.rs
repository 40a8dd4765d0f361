//! What people rely on at the edges: nothing used, everything at once, the wrong order, no room.

use std::time::Duration;

use crate::support::{TEST_TIMEOUT, ProcessMarker, builder, count, hub};
use futures_util::future::join_all;
use serde_json::json;
use stayput::{Error, Event, Expiry, Hub, Limits, Options, Session, SessionStatus, Stdio};
use stayput_testkit::program;

async fn next(session: &Session) -> Result<u64, Error> {
    let counted = session.call("counter", "count", json!({})).await?;
    Ok(counted.text().parse().unwrap())
}

/// R001, R035, E03: the scope is that of the session, and is cleared however the run ends, also if nothing could be
/// closed any more.
#[tokio::test]
async fn the_scope_is_cleared() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let current = || stayput::core::scope::current().map(|scope| scope.session());
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

/// R031, R025: a run that calls nothing opens nothing, also if it looks at lists.
#[tokio::test]
async fn nothing_used_is_nothing_opened() {
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

/// R018, R021, R026, R066: each server of a run has a link of its own, which calls and lists find.
#[tokio::test]
async fn each_server_of_a_run_for_itself() {
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

/// R029: why a server cannot be started is said, with what it wrote.
#[tokio::test]
async fn what_a_server_wrote_is_said() {
    let marker = ProcessMarker::new();
    let broken = marker.apply(Stdio::new("sh").args(["-c", "echo no such licence >&2; exit 3"]));
    let hub = Hub::builder().server("counter", broken).build().unwrap();
    let error = next(&hub.session("a").await.unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), "server_failed");
    assert!(error.to_string().contains("no such licence"), "{error}");
    assert!(!error.may_have_run());
}

/// E01, E36, R014, R106: sessions are ended in any order, from any task, all at once; a server that does not want to go
/// keeps nobody waiting for longer than the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_end_in_any_order() {
    let marker = ProcessMarker::new();
    let stubborn = marker.server().args(["--ignore-eof", "--ignore-term"]);
    let hub = hub(&marker);
    hub.add_server("stubborn", stubborn, Options::default()).await.unwrap();
    let names: Vec<_> = (0..8).map(|number| number.to_string()).collect();
    let sessions = join_all(names.iter().map(|name| hub.session(name))).await;
    let mut sessions: Vec<_> = sessions.into_iter().map(Result::unwrap).collect();
    for session in &sessions {
        next(session).await.unwrap();
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

/// E20, R071, invariant 7: a session with a call in flight does not idle out, whatever its time is.
#[tokio::test]
async fn a_call_in_flight_keeps_its_session() {
    let marker = ProcessMarker::new();
    let hub = builder(&marker).expiry(Expiry::idle(Duration::from_millis(200))).build().unwrap();
    let session = hub.session("a").await.unwrap();
    // Longer than it takes to sweep.
    let slow = session.call("counter", "slow", json!({ "ms": 7_000, "steps": 1 })).await;
    assert!(!slow.unwrap().is_error());
    marker.wait_until_gone().await;
    assert!(matches!(hub.find("a").await, Err(Error::UnknownSession)));
}

/// E27, R105: a server that is configured anew is closed as it was; who used it is told, and goes on with the new one.
#[tokio::test]
async fn a_replaced_server_is_closed() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    next(&session).await.unwrap();
    let old = marker.processes();
    let other = marker.server().env("X", "other");
    hub.add_server("counter", other.clone(), Options::default()).await.unwrap();
    assert!(marker.processes().is_empty(), "{old:?}");
    assert_eq!(next(&session).await.unwrap_err().reason(), Some("reconfigured"));
    assert_eq!(next(&session).await.unwrap(), 1);
    // The same once more changes nothing.
    hub.add_server("counter", other, Options::default()).await.unwrap();
    assert_eq!(next(&session).await.unwrap(), 2);
    assert!(hub.remove_server("counter").await);
    assert!(marker.processes().is_empty());
    assert_eq!(next(&session).await.unwrap_err().kind(), "unknown_server");
    // As a file has it, with what it chooses beside; also for an agent, which has it under a name of its own.
    let entry = json!({ "command": program("stayput-testserver"), "args": ["stdio"], "stayput": { "tools": { "deny": ["count"] } } });
    for hub in [&hub, &hub.agent("ann").unwrap()] {
        assert!(hub.add_configured("counter", &entry, "<entry>").await.unwrap().is_empty());
        let denied = next(&hub.session("b").await.unwrap()).await.unwrap_err();
        assert_eq!(denied.kind(), "denied", "{denied}");
    }
    let wrong = hub.add_configured("counter", json!({ "args": [] }), "<entry>").await.unwrap_err();
    assert_eq!(wrong.kind(), "config", "{wrong}");
    let off = json!({ "command": "x", "disabled": true });
    let off = hub.add_configured("counter", off, "<entry>").await.unwrap_err().to_string();
    assert!(off.contains("it is disabled"), "{off}");
    let odd = hub.add_server("a_byagent_b", marker.server(), Options::default()).await.unwrap_err();
    assert_eq!(odd.kind(), "invalid_input", "{odd}");
}

/// R077, R123, R130, R132, R133: everything of a session can be let go of, and the next call begins anew.
#[tokio::test]
async fn a_session_begins_anew() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    // Nothing to restart yet.
    session.restart_all().await.unwrap();
    assert_eq!(session.status("counter").unwrap(), SessionStatus::Unlinked);
    next(&session).await.unwrap();
    session.restart_all().await.unwrap();
    assert!(marker.processes().is_empty() && session.servers().is_empty());
    assert_eq!(next(&session).await.unwrap_err().reason(), Some("restarted"));
    assert_eq!(next(&session).await.unwrap(), 1);
}

/// E35, §4.2: at a limit the session that was idle for longest makes room, and is told.
#[tokio::test]
async fn who_idled_longest_makes_room() {
    let marker = ProcessMarker::new();
    let limits = Limits { processes: 2, ..Limits::default() };
    let hub = builder(&marker).limits(limits).build().unwrap();
    let sessions = join_all(["a", "b", "c"].map(|name| hub.session(name))).await;
    let sessions: Vec<_> = sessions.into_iter().map(Result::unwrap).collect();
    for session in &sessions {
        assert_eq!(next(session).await.unwrap(), 1);
    }
    crate::support::wait_until("two are left", || marker.processes().len() == 2).await;
    assert_eq!(sessions[0].status("counter").unwrap(), SessionStatus::Closed { reason: "evicted" });
    assert_eq!(next(&sessions[0]).await.unwrap_err().reason(), Some("evicted"));
    assert_eq!(next(&sessions[0]).await.unwrap(), 1);
    assert_eq!(next(&sessions[2]).await.unwrap(), 2);
}

/// R098, R131: prompts, resources and completion, on the hub and on a session.
#[tokio::test]
async fn everything_that_servers_offer() {
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

/// R016, R103: a server over HTTP+SSE is used as any other one.
#[tokio::test]
async fn a_server_over_sse_keeps_its_state() {
    let server = stayput_testkit::mcp::TestServer::sse(&["--era", "legacy"]).await;
    let sse = stayput::Transport::Sse(stayput::Http::new(server.url()));
    let hub = Hub::builder().server("counter", sse).build().unwrap();
    let counts = hub.run(async { [count(&hub).await, count(&hub).await] }).await;
    assert_eq!((counts, hub.run(count(&hub)).await), ([1, 2], 1));
    hub.close(TEST_TIMEOUT).await;
}

/// §3: a call that is dropped is cancelled, once, and costs the session nothing.
#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let (marker, folder) = (ProcessMarker::new(), tempfile::tempdir().unwrap());
    let log = folder.path().join("log");
    let server = marker.server().args(["--log", log.to_str().unwrap()]);
    let hub = Hub::builder().server("counter", server).build().unwrap();
    let session = hub.session("a").await.unwrap();
    assert_eq!(next(&session).await.unwrap(), 1);
    let heard = |what: &str| std::fs::read_to_string(&log).unwrap().matches(what).count();
    let slow = session.call("counter", "slow", json!({ "ms": 60_000 }));
    tokio::select! {
        done = slow.into_future() => panic!("{done:?}"),
        () = crate::support::wait_until("it is heard", || heard(r#""slow""#) == 1) => {}
    }
    crate::support::wait_until("it is cancelled", || heard("notifications/cancelled") == 1).await;
    assert_eq!(next(&session).await.unwrap(), 2);
    assert_eq!((heard("notifications/cancelled"), heard(r#""slow""#)), (1, 1));
}

/// R021, R143: whatever is asked of a session goes through one gate. The first thing opens its link, whichever it is,
/// all at once open one; of a session that was ended nothing can be asked, and nothing is started for it.
#[tokio::test]
async fn everything_goes_through_one_gate() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let known = hub.session("known").await.unwrap();
    let prompt = known.prompts("counter").await.unwrap()[0].name.clone();
    let uri = known.resources("counter").await.unwrap()[0].uri.clone();
    known.end().await.unwrap();
    marker.wait_until_gone().await;
    let reference = json!({ "type": "ref/prompt", "name": prompt });
    let ask = async |session: &Session, what: usize| match what {
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
        ask(&session, first).await.unwrap();
        assert!(matches!(session.status("counter").unwrap(), SessionStatus::Live { .. }), "{first}");
        join_all((0..7).map(|what| ask(&session, what))).await.into_iter().for_each(Result::unwrap);
        assert_eq!(marker.processes().len(), 1, "{first}");
        session.end().await.unwrap();
        for what in 0..7 {
            let refused = ask(&session, what).await.unwrap_err();
            assert!(matches!(refused, Error::SessionEnded { .. }), "{first} {what}: {refused}");
        }
        assert!(marker.processes().is_empty());
    }
}

/// R027, R028, R107, R131: what the Python side and frameworks rely on: handles that can be kept and sent anywhere.
#[test]
fn handles_go_anywhere() {
    fn anywhere<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    anywhere::<Hub>();
    anywhere::<Session>();
    anywhere::<Error>();
    anywhere::<stayput::ToolResult>();
    anywhere::<stayput::Ticket>();
    sent::<stayput::ToolCall>();
    sent::<stayput::Events>();
}

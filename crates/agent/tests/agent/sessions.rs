//! Named, default and moved sessions.

use std::time::Duration;

use crate::support::{ProcessMarker, TEST_TIMEOUT, builder, count, hub};
use serde_json::json;
use stayput::{
    DefaultSessionOptions, Error, Event, Generation, Handlers, Http, Hub, Options, Session,
    SessionStatus,
};
use stayput_testkit::mcp::TestServer;

async fn count_on(session: &Session) -> Result<u64, Error> {
    let counted = session.call("counter", "count", json!({})).await?;
    Ok(counted.text().parse().unwrap())
}

/// Waits until the hub notices that the server process is dead. A call before that may still reach it.
async fn wait_for_exit(session: &Session) {
    let dead = || matches!(session.status("counter").unwrap(), SessionStatus::Closed { .. });
    crate::support::until("the exit is noticed", dead).await;
}

/// R064, R067, R068, R070, R076, R084, R096, R134, E34: two names are two sessions, and dropping a session releases
/// it.
#[tokio::test]
async fn name_finds_its_session() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let (a, b) = (hub.session("a").await.unwrap(), hub.session("b").await.unwrap());
    assert_eq!(count_on(&a).await.unwrap(), 1);
    assert_eq!(count_on(&b).await.unwrap(), 1);
    assert_eq!(count_on(&a).await.unwrap(), 2);
    let id = a.id();
    drop(a);
    let again = hub.session("a").await.unwrap();
    assert_eq!((again.id(), count_on(&again).await.unwrap()), (id, 3));
    assert_eq!(hub.find("a").await.unwrap().id(), id);
    assert!(matches!(hub.find("c").await, Err(Error::UnknownSession)));
    assert_eq!(marker.processes().len(), 2);
    let report = hub.close(TEST_TIMEOUT).await;
    assert_eq!((report.sessions, report.links, report.killed), (2, 2, 0));
    assert!(marker.processes().is_empty());
    assert!(matches!(count_on(&again).await, Err(Error::HubClosed)));
}

/// R079, R022.
#[tokio::test]
async fn ended_session_refuses_calls() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    count_on(&session).await.unwrap();
    session.end().await.unwrap();
    assert!(marker.processes().is_empty());
    let error = count_on(&session).await.unwrap_err();
    assert!(matches!(error, Error::SessionEnded { session: id } if id == session.id()), "{error}");
    // The name is free again.
    let other = hub.session("a").await.unwrap();
    assert_ne!(other.id(), session.id());
}

/// R099, R100, R101.
#[tokio::test]
async fn agents_have_separate_names_and_servers() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let (ann, bob) = (hub.agent("ann").unwrap(), hub.agent("bob").unwrap());
    let sessions = [&hub, &ann, &bob].map(|it| it.session("chat"));
    let sessions = futures_util::future::try_join_all(sessions).await.unwrap();
    for session in &sessions {
        assert_eq!(count_on(session).await.unwrap(), 1);
    }
    ann.add_server("own", marker.server(), Options::default()).await.unwrap();
    bob.add_server("own", marker.server().env("X", "bob"), Options::default()).await.unwrap();
    assert_eq!(ann.server_names(), ["counter", "own"]);
    let env = async |session: &Session| {
        session.call("own", "env", json!({ "name": "X" })).await.map(|it| it.text())
    };
    assert_ne!(env(&sessions[1]).await.unwrap(), "bob");
    assert_eq!(env(&sessions[2]).await.unwrap(), "bob");
    let error = env(&sessions[0]).await.unwrap_err();
    assert!(matches!(&error, Error::UnknownServer { known, .. } if known == "counter"), "{error}");
    assert!(ann.remove_server("own").await && !ann.remove_server("own").await);
    hub.close(TEST_TIMEOUT).await;
    assert!(marker.processes().is_empty());
}

/// R069, R085, E23, E33.
#[tokio::test]
async fn global_name_is_found_by_every_agent_and_unique() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let ann = hub.agent("ann").unwrap();
    let made = ann.global_session("shared").await.unwrap();
    count_on(&made).await.unwrap();
    let found = hub.agent("bob").unwrap().find_global("shared").await.unwrap();
    assert_eq!(count_on(&found).await.unwrap(), 2);
    let refused = hub.global_session("shared").await.unwrap_err();
    assert!(matches!(&refused, Error::NameTaken { name } if name == "shared"), "{refused}");
    assert!(hub.find("shared").await.is_err(), "a global name is not a name of an agent");
}

/// R080–R083, R086, R089, R093, R095: leaving a scope restores the outer one.
#[tokio::test]
async fn explicit_session_wins_over_scope_and_scope_over_default() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let default = hub.enable_default_session(DefaultSessionOptions::default()).await.unwrap();
    assert_eq!(count(&hub).await, 1);
    // R087: it is created once.
    assert_eq!(
        hub.enable_default_session(DefaultSessionOptions::default()).await.unwrap().id(),
        default.id()
    );
    let info = default.info().await.unwrap();
    assert_eq!(info.expires.unwrap().since(info.last_used), Duration::from_secs(7_200));
    assert!(info.name.unwrap().starts_with("auto_"));
    let (a, b) = (hub.session("a").await.unwrap(), hub.session("b").await.unwrap());
    a.run(async {
        assert_eq!(count(&hub).await, 1);
        b.run(async { assert_eq!(count(&hub).await, 1) }).await;
        assert_eq!(count(&hub).await, 2);
        assert_eq!(count_on(&b).await.unwrap(), 2);
    })
    .await;
    assert_eq!(count(&hub).await, 2);
    // After its explicit end, the next default session is a new one.
    default.end().await.unwrap();
    let other = hub.enable_default_session(DefaultSessionOptions::default()).await.unwrap();
    assert_ne!(other.id(), default.id());
    assert_eq!(count(&hub).await, 1);
    // R088.
    hub.disable_default_session().await.unwrap();
    assert!(matches!(hub.call("counter", "count", json!({})).await, Err(Error::NoSession)));
}

#[tokio::test]
async fn dropped_hub_ends_its_default_session() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    hub.enable_default_session(DefaultSessionOptions::default()).await.unwrap();
    assert_eq!(count(&hub).await, 1);
    drop(hub);
    marker.wait_until_gone().await;
}

/// R072–R075, R077.
#[tokio::test]
async fn session_reports_info_and_status() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    assert_eq!(session.status("counter").unwrap(), SessionStatus::Unlinked);
    assert!(session.servers().is_empty() && marker.processes().is_empty());
    session.bind("counter").await.unwrap();
    let live = SessionStatus::Live { generation: Generation(0), in_flight: 0 };
    assert_eq!(
        (session.status("counter").unwrap(), session.servers()),
        (live, vec!["counter".to_owned()])
    );
    assert_eq!(count_on(&session).await.unwrap(), 1);
    let info = session.info().await.unwrap();
    assert_eq!((info.name.as_deref(), info.id), (Some("a"), session.id()));
    session.extend(Duration::from_secs(12_345)).await.unwrap();
    let later = session.info().await.unwrap();
    assert_eq!(later.expires.unwrap().since(later.last_used), Duration::from_secs(12_345));
    session.restart("counter").await.unwrap();
    assert_eq!(session.status("counter").unwrap(), SessionStatus::Closed { reason: "restarted" });
    let error = count_on(&session).await.unwrap_err();
    assert_eq!(error.state_lost().unwrap().reason(), "restarted");
    assert_eq!(count_on(&session).await.unwrap(), 1);
    assert!(matches!(session.status("nothing"), Err(Error::UnknownServer { .. })));
}

/// R030, E13, §4.7: after the report of a dead child, calls run on a fresh one.
#[tokio::test]
async fn loss_is_reported_once_to_each_scope() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let (one, two) = (hub.session("a").await.unwrap(), hub.session("a").await.unwrap());
    assert_eq!((count_on(&one).await.unwrap(), count_on(&two).await.unwrap()), (1, 2));
    let mut events = hub.events();
    marker.kill_processes();
    wait_for_exit(&one).await;
    let lost = count_on(&one).await.unwrap_err();
    let loss = lost.state_lost().unwrap();
    assert!(lost.is_state_lost() && !lost.may_have_run(), "{lost}");
    assert_eq!(
        (lost.generation(), loss.server(), loss.reason()),
        (Some(Generation(1)), Some("counter"), "exited")
    );
    assert_eq!(count_on(&one).await.unwrap(), 1);
    assert!(
        count_on(&two).await.unwrap_err().is_state_lost(),
        "the loss was not reported to the other scope"
    );
    assert_eq!(count_on(&two).await.unwrap(), 2);
    // A scope that begins later gets no report.
    assert_eq!(count_on(&hub.session("a").await.unwrap()).await.unwrap(), 3);
    let lost = loop {
        if let Event::Lost { generation, reason, .. } = events.next().await.unwrap() {
            break (generation, reason);
        }
    };
    assert_eq!(lost, (Generation(1), "exited"));
}

/// E22: a call in flight fails at once, and says that it may have run.
#[tokio::test]
async fn restart_on_loss_repeats_only_calls_that_did_not_run() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    count_on(&session).await.unwrap();
    let crashed = session.call("counter", "crash", json!({})).restart_on_loss().await.unwrap_err();
    assert!(crashed.is_state_lost() && crashed.may_have_run(), "{crashed}");
    assert_eq!(count_on(&session).await.unwrap(), 1);
    // A new session, because a server that failed twice in a row backs off.
    let session = hub.session("b").await.unwrap();
    count_on(&session).await.unwrap();
    marker.kill_processes();
    wait_for_exit(&session).await;
    let again = session.call("counter", "count", json!({})).restart_on_loss().await.unwrap();
    assert!(again.after_loss() && again.text() == "1");
    let plain = session.call("counter", "count", json!({})).restart_on_loss().await.unwrap();
    assert!(!plain.after_loss() && plain.text() == "2");
}

/// R118, E07: on an HTTP server without any other request.
#[tokio::test]
async fn ticket_moves_a_session_to_another_hub() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let hub = || Hub::builder().server("counter", Http::new(server.url())).build().unwrap();
    let (here, there) = (hub(), hub());
    let session = here.agent("ann").unwrap().session("a").await.unwrap();
    assert_eq!(count_on(&session).await.unwrap(), 1);
    session.extend(Duration::from_secs(1_234)).await.unwrap();
    let old = session.clone();
    let ticket = session.into_ticket().await.unwrap();
    assert!(matches!(count_on(&old).await, Err(Error::SessionEnded { .. })));
    assert_eq!(format!("{ticket:?}"), "Ticket(…)");
    here.close(TEST_TIMEOUT).await;
    let before = server.stats().await["methods"].clone();
    let resumed = there.resume(&ticket).await.unwrap();
    assert_eq!(count_on(&resumed).await.unwrap(), 2);
    let mut after = server.stats().await["methods"].clone();
    assert_eq!(after["tools/call"].as_u64(), before["tools/call"].as_u64().map(|it| it + 1));
    after["tools/call"] = before["tools/call"].clone();
    assert_eq!(after, before, "no other request was sent");
    let info = resumed.info().await.unwrap();
    assert_eq!((info.name.as_deref(), info.agent.as_str()), (Some("a"), "ann"));
    assert_eq!(info.expires.unwrap().since(info.last_used), Duration::from_secs(1_234));
    assert!(matches!(there.resume(&ticket).await, Err(Error::NameTaken { .. })));
    let bad = there.resume(&stayput::Ticket::from_secret("{}")).await.unwrap_err();
    assert!(bad.to_string().contains("must come from a session"));
}

/// R142, R078.
#[tokio::test]
async fn lists_come_from_the_profile_until_the_cache_is_cleared() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let tools = hub.tools("counter").await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "count" && tool.description.is_some()));
    marker.wait_until_gone().await;
    let text = hub.profile("counter").await.unwrap();
    let other = builder(&marker).build().unwrap();
    other.set_profile("counter", &text).await.unwrap();
    assert_eq!(other.tools("counter").await.unwrap(), tools);
    assert!(marker.processes().is_empty(), "no server was started");
    let session = hub.session("a").await.unwrap();
    assert_eq!(session.tools("counter").await.unwrap(), tools);
    assert!(marker.processes().is_empty());
    session.clear_cache();
    assert_eq!(session.tools("counter").await.unwrap(), tools);
    assert_eq!(marker.processes().len(), 1, "the list was fetched");
    assert!(!session.prompts("counter").await.unwrap().is_empty());
    assert!(!session.resources("counter").await.unwrap().is_empty());
}

/// R131: a failed tool is a result, not an error.
#[tokio::test]
async fn handlers_answer_and_notifications_arrive() {
    let marker = ProcessMarker::new();
    let handlers = Handlers::default().elicitation(async |asked| {
        assert_eq!(asked["message"], "who?");
        Ok(json!({ "action": "accept", "content": { "name": "Ann" } }))
    });
    let hub = builder(&marker).handlers(handlers).build().unwrap();
    let session = hub.session("a").await.unwrap();
    let asked = session.call("counter", "elicit", json!({ "message": "who?" })).await.unwrap();
    assert!(asked.text().contains("Ann"), "{}", asked.raw());
    let refused = session.call("counter", "sample", json!({ "prompt": "p" })).await.unwrap();
    assert!(refused.is_error() || !refused.text().is_empty());
    let (sender, receiver) = std::sync::mpsc::channel();
    let slow = session
        .call("counter", "slow", json!({ "ms": 30, "steps": 3 }))
        .on_notification(move |text| sender.send(text.to_owned()).unwrap())
        .await
        .unwrap();
    assert!(!slow.is_error());
    let received: Vec<_> = receiver.try_iter().collect();
    assert!(received.iter().any(|it| it.contains("notifications/progress")), "{received:?}");
    let failed = session.call("counter", "fail", json!({})).await.unwrap();
    assert!(failed.is_error() && !failed.text().is_empty());
    let unknown = session.call("counter", "no such tool", json!({})).await;
    assert!(unknown.is_err_and(|error| matches!(error, Error::ProtocolError { .. })));
    let odd = session.call("counter", "count", json!([1])).await.unwrap_err();
    assert!(odd.to_string().contains("no JSON object"));
    let unwritable = std::collections::BTreeMap::from([((1, 2), 3)]);
    let error = session.call("counter", "count", unwritable).await.unwrap_err();
    assert!(error.to_string().contains("no JSON: key must be a string"), "{error}");
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    assert!(cause.is::<serde_json::Error>(), "{cause:?}");
    let late = session.call("counter", "slow", json!({ "ms": 60_000 }));
    let late = late.timeout(Duration::from_millis(50)).await.unwrap_err();
    assert!(late.may_have_run() && late.to_string().contains("50ms"), "{late}");
}

/// R105.
#[tokio::test]
async fn wait_ready_waits_for_a_server_or_reports_its_failure() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    hub.wait_ready("counter", TEST_TIMEOUT).await.unwrap();
    let nothing = stayput::Stdio::new("no-such-program-anywhere");
    hub.add_server("broken", nothing, Options::default()).await.unwrap();
    let error = hub.wait_ready("broken", Duration::from_millis(300)).await.unwrap_err();
    assert!(error.to_string().contains("no-such-program-anywhere"), "{error}");
}

/// E21, E26, invariant 6: a session is opened on one runtime, used on another and dropped on none.
#[test]
fn hub_works_across_runtimes() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let session = runtime().block_on(hub.session("a")).unwrap();
    assert_eq!(runtime().block_on(count_on(&session)).unwrap(), 1);
    assert_eq!(runtime().block_on(count_on(&session)).unwrap(), 2);
    assert_eq!(marker.processes().len(), 1);
    drop(session);
    drop(hub);
    marker.wait_until_gone_blocking();
}

#[cfg(feature = "rmcp")]
#[tokio::test]
async fn result_converts_to_the_sdk_type() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let session = hub.session("a").await.unwrap();
    let counted = session.call("counter", "count", json!({})).await.unwrap();
    let counted = rmcp::model::CallToolResult::try_from(counted).unwrap();
    let text = serde_json::to_value(&counted).unwrap();
    assert_eq!(text["content"][0]["text"], "1");
}

/// The list has all live sessions, or those of one agent.
#[tokio::test]
async fn live_sessions_are_listed() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let ann = hub.agent("ann").unwrap();
    let (first, _second) = (hub.session("a").await.unwrap(), ann.session("b").await.unwrap());
    let names = |found: Vec<stayput::SessionInfo>| -> Vec<(String, Option<String>)> {
        // Ids of the same millisecond have no order.
        let mut names: Vec<_> = found.into_iter().map(|it| (it.agent, it.name)).collect();
        names.sort();
        names
    };
    let (of_hub, of_ann) =
        ((String::new(), Some("a".to_owned())), ("ann".to_owned(), Some("b".to_owned())));
    assert_eq!(names(hub.sessions().await.unwrap()), [of_hub, of_ann.clone()]);
    assert_eq!(names(ann.sessions().await.unwrap()), std::slice::from_ref(&of_ann));
    first.end().await.unwrap();
    assert_eq!(names(hub.sessions().await.unwrap()), [of_ann]);
}

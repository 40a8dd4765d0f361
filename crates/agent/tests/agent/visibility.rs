//! Visibility of servers: stderr, calls as events, `_meta`, trace context.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{ProcessMarker, TEST_TIMEOUT, builder, hub, until};
use futures_util::future::join_all;
use serde_json::{Value, json};
use stayput::{Event, ExitStatus, Session};

async fn sent_meta(session: &Session) -> Value {
    let call = session.call("counter", "meta", ()).meta(json!({ "example.com/tenant": "a" }));
    serde_json::from_str(&call.await.unwrap().text()).unwrap()
}

/// Lines come while the process runs, the last one without a line break at its end; secrets are redacted.
#[tokio::test]
async fn stderr_comes_line_by_line_without_secrets() {
    let (marker, lines) = (ProcessMarker::new(), Arc::new(Mutex::new(Vec::new())));
    let seen = lines.clone();
    let hub = builder(&marker).on_stderr(move |line| seen.lock().unwrap().push(line));
    let hub = hub.build().unwrap();
    let chat = hub.session("chat").await.unwrap();
    for text in ["one\n\ntwo", &format!("the token is {}", marker.value())] {
        chat.call("counter", "stderr", json!({ "text": text })).await.unwrap();
    }
    until("three lines", || lines.lock().unwrap().len() == 3).await;
    let lines = lines.lock().unwrap().clone();
    assert!(lines.iter().all(|line| line.server == "counter"));
    assert_eq!([&*lines[0].text, &*lines[1].text], ["one", "two"], "empty lines are left out");
    assert_eq!(lines[2].text, "the token is [redacted]");
    hub.close(TEST_TIMEOUT).await;
}

/// Members of the caller are beside those of the hub; anything but an object is an error of the call.
#[tokio::test]
async fn meta_and_trace_context_reach_the_server() {
    let marker = ProcessMarker::new();
    let context = || vec![("traceparent".to_owned(), "00-aa-bb-01".to_owned())];
    let hub = builder(&marker).trace_context(context).build().unwrap();
    let chat = hub.session("chat").await.unwrap();
    let sent = sent_meta(&chat).await;
    assert_eq!(sent, json!({ "traceparent": "00-aa-bb-01", "example.com/tenant": "a" }));
    let listening = chat.call("counter", "meta", ()).on_notification(|_| ()).await.unwrap().text();
    let sent: Value = serde_json::from_str(&listening).unwrap();
    assert!(sent["progressToken"].is_string() || sent["progressToken"].is_number(), "{sent}");
    let error = chat.call("counter", "meta", ()).meta(["no object"]).await.unwrap_err();
    assert_eq!(error.kind(), "invalid_input", "{error}");
    hub.close(TEST_TIMEOUT).await;
    let plain = crate::support::hub(&marker);
    assert_eq!(sent_meta(&plain.ephemeral()).await, json!({ "example.com/tenant": "a" }));
}

/// Link, calls, loss and end come in this order, each with the name of the session.
#[tokio::test]
async fn events_tell_calls_in_order() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    let mut events = hub.events();
    let chat = hub.session("chat").await.unwrap();
    chat.call("counter", "count", ()).await.unwrap();
    chat.call("counter", "stderr", json!({ "text": "last words" })).await.unwrap();
    let lost = chat.call("counter", "exit", json!({ "code": 7 })).await.unwrap_err();
    let lost = lost.state_lost().unwrap();
    assert_eq!(lost.exit_status(), Some(ExitStatus::Code(7)));
    assert!(lost.detail().contains("last words"), "{}", lost.detail());
    chat.end().await.unwrap();
    let mut told = Vec::new();
    while told.last().is_none_or(|it: &String| it != "ended") {
        told.push(match events.next().await.unwrap() {
            Event::Linked { name, .. } => format!("linked {}", name.unwrap()),
            Event::Called { name, tool, duration, error, .. } => {
                assert!(name.as_deref() == Some("chat") && duration > Duration::ZERO);
                format!("called {tool} {}", error.unwrap_or("well"))
            }
            Event::Lost { exit_status, detail, .. } => {
                assert!(detail.contains("last words"), "{detail}");
                format!("lost {}", exit_status.unwrap())
            }
            _ => "ended".to_owned(),
        });
    }
    let expected = [
        "linked chat",
        "called count well",
        "called stderr well",
        "lost exited with code 7",
        "called exit state_lost",
        "ended",
    ];
    assert_eq!(told, expected);
}

/// A call is a future, so that `join_all` takes it; `scoped` carries the session of a run into a `JoinSet`.
#[tokio::test]
async fn calls_can_be_joined_and_spawned() {
    let marker = ProcessMarker::new();
    let hub = hub(&marker);
    hub.run(async {
        let calls = (0..5).map(|_| hub.call("counter", "count", ()));
        let counted = join_all(calls).await.into_iter().map(|it| it.unwrap().text());
        let mut counted: Vec<u8> = counted.map(|it| it.parse().unwrap()).collect();
        counted.sort_unstable();
        assert_eq!(counted, [1, 2, 3, 4, 5]);
        let mut set = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let hub = hub.clone();
            set.spawn(stayput::scoped(async move {
                hub.call("counter", "count", ()).await.unwrap().text().parse::<u8>().unwrap()
            }));
        }
        let mut counted = set.join_all().await;
        counted.sort_unstable();
        assert_eq!(counted, [6, 7, 8, 9, 10]);
    })
    .await;
    marker.wait_until_gone().await;
}

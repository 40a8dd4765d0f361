//! Named sessions: found again by their name, ended for certain.

use std::time::Duration;

use crate::world::{LONG, Token, builder, count, hub};
use serde_json::json;
use stayput::{Automatic, Error, Event, Generation, Handlers, Http, Hub, Options, Session, Status};
use stayput_testkit::mcp::TestServer;

async fn next(session: &Session) -> Result<u64, Error> {
    let counted = session.call("counter", "count", json!({})).await?;
    Ok(counted.text().parse().unwrap())
}

/// The hub has noticed that the server of a session is dead. Before that, a call may have reached it.
async fn noticed(session: &Session) {
    let dead = || matches!(session.status("counter").unwrap(), Status::Over { .. });
    crate::world::until("the death is noticed", dead).await;
}

/// R064, R067, R068, R070, R076, R084, R096, R134, E34: a name leads to one session, and two names to two; dropping one releases it.
#[tokio::test]
async fn a_name_leads_to_its_session() {
    let token = Token::new();
    let hub = hub(&token);
    let (a, b) = (hub.session("a").await.unwrap(), hub.session("b").await.unwrap());
    assert_eq!(next(&a).await.unwrap(), 1);
    assert_eq!(next(&b).await.unwrap(), 1);
    assert_eq!(next(&a).await.unwrap(), 2);
    let id = a.id();
    drop(a);
    let again = hub.session("a").await.unwrap();
    assert_eq!((again.id(), next(&again).await.unwrap()), (id, 3));
    assert_eq!(hub.find("a").await.unwrap().id(), id);
    assert!(matches!(hub.find("c").await, Err(Error::UnknownSession)));
    assert_eq!(token.alive().len(), 2);
    let report = hub.close(LONG).await;
    assert_eq!((report.sessions, report.links, report.killed), (2, 2, 0));
    assert!(token.alive().is_empty());
    assert!(matches!(next(&again).await, Err(Error::Closed)));
}

/// R079, R022: ended, everything behind it is gone, and further use is a typed error.
#[tokio::test]
async fn an_ended_session_stays_ended() {
    let token = Token::new();
    let hub = hub(&token);
    let session = hub.session("a").await.unwrap();
    next(&session).await.unwrap();
    session.end().await.unwrap();
    assert!(token.alive().is_empty());
    let error = next(&session).await.unwrap_err();
    assert!(matches!(error, Error::Ended { session: id } if id == session.id()), "{error}");
    // The name is free again, for another session.
    let other = hub.session("a").await.unwrap();
    assert_ne!(other.id(), session.id());
}

/// R099, R100, R101: agents have names and servers of their own.
#[tokio::test]
async fn agents_do_not_meet() {
    let token = Token::new();
    let hub = hub(&token);
    let (ann, bob) = (hub.agent("ann").unwrap(), hub.agent("bob").unwrap());
    let sessions = [&hub, &ann, &bob].map(|it| it.session("chat"));
    let sessions = futures_util::future::try_join_all(sessions).await.unwrap();
    for session in &sessions {
        assert_eq!(next(session).await.unwrap(), 1);
    }
    ann.add_server("own", token.server(), Options::default()).await.unwrap();
    bob.add_server("own", token.server().env("X", "bob"), Options::default()).await.unwrap();
    assert_eq!(ann.server_names(), ["counter", "own"]);
    let env = async |session: &Session| {
        session.call("own", "env", json!({ "name": "X" })).await.map(|it| it.text())
    };
    assert_ne!(env(&sessions[1]).await.unwrap(), "bob");
    assert_eq!(env(&sessions[2]).await.unwrap(), "bob");
    let error = env(&sessions[0]).await.unwrap_err();
    assert!(matches!(&error, Error::UnknownServer { known, .. } if known == "counter"), "{error}");
    assert!(ann.remove_server("own").await && !ann.remove_server("own").await);
    hub.close(LONG).await;
    assert!(token.alive().is_empty());
}

/// R069, R085, E23, E33: a global name is found by every agent, and is nobody else's.
#[tokio::test]
async fn a_global_name_refuses_a_second_one() {
    let token = Token::new();
    let hub = hub(&token);
    let ann = hub.agent("ann").unwrap();
    let made = ann.global_session("shared").await.unwrap();
    next(&made).await.unwrap();
    let found = hub.agent("bob").unwrap().find_global("shared").await.unwrap();
    assert_eq!(next(&found).await.unwrap(), 2);
    let refused = hub.global_session("shared").await.unwrap_err();
    assert!(matches!(&refused, Error::Taken { name } if name == "shared"), "{refused}");
    assert!(hub.find("shared").await.is_err(), "it is no name of an agent");
}

/// R080–R083, R089, R093, R095: explicit before ambient before automatic, and what was current is so again.
#[tokio::test]
async fn explicit_before_ambient_before_automatic() {
    let token = Token::new();
    let hub = hub(&token);
    let automatic = hub.automatic(Automatic::default()).await.unwrap();
    assert_eq!(count(&hub).await, 1);
    // R087: it is made once.
    assert_eq!(hub.automatic(Automatic::default()).await.unwrap().id(), automatic.id());
    assert!(automatic.info().await.unwrap().name.unwrap().starts_with("auto_"));
    let (a, b) = (hub.session("a").await.unwrap(), hub.session("b").await.unwrap());
    a.run(async {
        assert_eq!(count(&hub).await, 1);
        b.run(async { assert_eq!(count(&hub).await, 1) }).await;
        assert_eq!(count(&hub).await, 2);
        assert_eq!(next(&b).await.unwrap(), 2);
    })
    .await;
    assert_eq!(count(&hub).await, 2);
    // Ended by hand, the next one is another one.
    automatic.end().await.unwrap();
    let other = hub.automatic(Automatic::default()).await.unwrap();
    assert_ne!(other.id(), automatic.id());
    assert_eq!(count(&hub).await, 1);
    // R088: back to manual.
    hub.manual().await.unwrap();
    assert!(matches!(hub.call("counter", "count", json!({})).await, Err(Error::NoSession)));
}

/// A hub that is dropped takes its automatic session along.
#[tokio::test]
async fn a_dropped_hub_leaves_nothing() {
    let token = Token::new();
    let hub = hub(&token);
    hub.automatic(Automatic::default()).await.unwrap();
    assert_eq!(count(&hub).await, 1);
    drop(hub);
    token.gone().await;
}

/// R072–R075, R077, R086: what is known of a session is true.
#[tokio::test]
async fn a_session_tells_how_it_stands() {
    let token = Token::new();
    let hub = hub(&token);
    let session = hub.session("a").await.unwrap();
    assert_eq!(session.status("counter").unwrap(), Status::Unlinked);
    assert!(session.servers().is_empty() && token.alive().is_empty());
    session.bind("counter").await.unwrap();
    let live = Status::Live { generation: Generation(0), in_flight: 0 };
    assert_eq!(
        (session.status("counter").unwrap(), session.servers()),
        (live, vec!["counter".to_owned()])
    );
    assert_eq!(next(&session).await.unwrap(), 1);
    let info = session.info().await.unwrap();
    assert_eq!((info.name.as_deref(), info.id), (Some("a"), session.id()));
    session.extend(Duration::from_secs(12_345)).await.unwrap();
    let later = session.info().await.unwrap();
    assert_eq!(later.expires.unwrap().since(later.last_used), Duration::from_secs(12_345));
    session.restart("counter").await.unwrap();
    assert_eq!(session.status("counter").unwrap(), Status::Over { reason: "restarted" });
    let told = next(&session).await.unwrap_err();
    assert_eq!(told.state_lost().unwrap().reason(), "restarted");
    assert_eq!(next(&session).await.unwrap(), 1);
    assert!(matches!(session.status("nothing"), Err(Error::UnknownServer { .. })));
}

/// R030, E13, §4.7: a child that dies is a loss, told once to each scope, and then it goes on afresh.
#[tokio::test]
async fn each_scope_is_told_of_a_loss_once() {
    let token = Token::new();
    let hub = hub(&token);
    let (one, two) = (hub.session("a").await.unwrap(), hub.session("a").await.unwrap());
    assert_eq!((next(&one).await.unwrap(), next(&two).await.unwrap()), (1, 2));
    let mut events = hub.events();
    token.kill();
    noticed(&one).await;
    let lost = next(&one).await.unwrap_err();
    let told = lost.state_lost().unwrap();
    assert!(lost.is_state_lost() && !lost.may_have_run(), "{lost}");
    assert_eq!(
        (lost.generation(), told.server(), told.reason()),
        (Some(Generation(1)), Some("counter"), "exited")
    );
    assert_eq!(next(&one).await.unwrap(), 1);
    assert!(next(&two).await.unwrap_err().is_state_lost(), "the other one did not know");
    assert_eq!(next(&two).await.unwrap(), 2);
    // Whoever comes later has nothing to forget.
    assert_eq!(next(&hub.session("a").await.unwrap()).await.unwrap(), 3);
    let lost = loop {
        if let Event::Lost { generation, reason, .. } = events.next().await.unwrap() {
            break (generation, reason);
        }
    };
    assert_eq!(lost, (Generation(1), "exited"));
}

/// E22: a call in flight fails at once, and says that it may have run. With `restart_on_loss` only what did
/// not run is made again.
#[tokio::test]
async fn a_call_is_never_made_twice() {
    let token = Token::new();
    let hub = hub(&token);
    let session = hub.session("a").await.unwrap();
    next(&session).await.unwrap();
    let crashed = session.call("counter", "crash", json!({})).restart_on_loss().await.unwrap_err();
    assert!(crashed.is_state_lost() && crashed.may_have_run(), "{crashed}");
    assert_eq!(next(&session).await.unwrap(), 1);
    // Another one: who lost twice in a row rests before the next start.
    let session = hub.session("b").await.unwrap();
    next(&session).await.unwrap();
    token.kill();
    noticed(&session).await;
    let again = session.call("counter", "count", json!({})).restart_on_loss().await.unwrap();
    assert!(again.after_loss() && again.text() == "1");
    let plain = session.call("counter", "count", json!({})).restart_on_loss().await.unwrap();
    assert!(!plain.after_loss() && plain.text() == "2");
}

/// R118, E07: a session on an HTTP server goes on in another hub, without a word to the server.
#[tokio::test]
async fn a_ticket_takes_a_session_along() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let hub = || Hub::builder().server("counter", Http::new(server.url())).build().unwrap();
    let (here, there) = (hub(), hub());
    let session = here.agent("ann").unwrap().session("a").await.unwrap();
    assert_eq!(next(&session).await.unwrap(), 1);
    session.extend(Duration::from_secs(1_234)).await.unwrap();
    let old = session.clone();
    let ticket = session.into_ticket().await.unwrap();
    assert!(matches!(next(&old).await, Err(Error::Ended { .. })));
    assert_eq!(format!("{ticket:?}"), "Ticket(…)");
    here.close(LONG).await;
    let before = server.stats().await["methods"].clone();
    let resumed = there.resume(&ticket).await.unwrap();
    assert_eq!(next(&resumed).await.unwrap(), 2);
    let mut after = server.stats().await["methods"].clone();
    assert_eq!(after["tools/call"].as_u64(), before["tools/call"].as_u64().map(|it| it + 1));
    after["tools/call"] = before["tools/call"].clone();
    assert_eq!(after, before, "not a word beside the call");
    let info = resumed.info().await.unwrap();
    assert_eq!((info.name.as_deref(), info.agent.as_str()), (Some("a"), "ann"));
    assert_eq!(info.expires.unwrap().since(info.last_used), Duration::from_secs(1_234));
    assert!(matches!(there.resume(&ticket).await, Err(Error::Taken { .. })));
    let bad = there.resume(&stayput::Ticket::from_secret("{}")).await.unwrap_err();
    assert!(bad.to_string().contains("into_ticket"));
}

/// R142, R078: lists come without a process; a list that changed is asked for; the cache can be cleared.
#[tokio::test]
async fn lists_come_from_what_is_known() {
    let token = Token::new();
    let hub = hub(&token);
    let tools = hub.tools("counter").await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "count" && tool.description.is_some()));
    token.gone().await;
    let text = hub.profile("counter").await.unwrap();
    let other = builder(&token).build().unwrap();
    other.remember("counter", &text).await.unwrap();
    assert_eq!(other.tools("counter").await.unwrap(), tools);
    assert!(token.alive().is_empty(), "nobody was asked");
    let session = hub.session("a").await.unwrap();
    assert_eq!(session.tools("counter").await.unwrap(), tools);
    assert!(token.alive().is_empty());
    session.clear_cache();
    assert_eq!(session.tools("counter").await.unwrap(), tools);
    assert_eq!(token.alive().len(), 1, "now it was asked");
    assert!(!session.prompts("counter").await.unwrap().is_empty());
    assert!(!session.resources("counter").await.unwrap().is_empty());
}

/// R131: what servers ask is answered by handlers; progress is heard; a tool's failure is a result.
#[tokio::test]
async fn servers_ask_and_tell() {
    let token = Token::new();
    let handlers = Handlers::default().elicitation(async |asked| {
        assert_eq!(asked["message"], "who?");
        Ok(json!({ "action": "accept", "content": { "name": "Ann" } }))
    });
    let hub = builder(&token).handlers(handlers).build().unwrap();
    let session = hub.session("a").await.unwrap();
    let asked = session.call("counter", "elicit", json!({ "message": "who?" })).await.unwrap();
    assert!(asked.text().contains("Ann"), "{}", asked.raw());
    let refused = session.call("counter", "sample", json!({ "prompt": "p" })).await.unwrap();
    assert!(refused.is_error() || !refused.text().is_empty());
    let (tell, told) = std::sync::mpsc::channel();
    let slow = session
        .call("counter", "slow", json!({ "ms": 30, "steps": 3 }))
        .on_notification(move |text| tell.send(text.to_owned()).unwrap())
        .await
        .unwrap();
    assert!(!slow.is_error());
    let told: Vec<_> = told.try_iter().collect();
    assert!(told.iter().any(|it| it.contains("notifications/progress")), "{told:?}");
    let failed = session.call("counter", "fail", json!({})).await.unwrap();
    assert!(failed.is_error() && !failed.text().is_empty());
    let unknown = session.call("counter", "no such tool", json!({})).await;
    assert!(unknown.is_err_and(|error| matches!(error, Error::Refused { .. })));
    let odd = session.call("counter", "count", json!([1])).await.unwrap_err();
    assert!(odd.to_string().contains("no JSON object"));
    let late = session.call("counter", "slow", json!({ "ms": 60_000 }));
    let late = late.timeout(Duration::from_millis(50)).await.unwrap_err();
    assert!(late.may_have_run() && late.to_string().contains("50ms"), "{late}");
}

/// R105: a server can be waited for; what is wrong with one that does not come is said.
#[tokio::test]
async fn a_server_is_waited_for() {
    let token = Token::new();
    let hub = hub(&token);
    hub.wait_ready("counter", LONG).await.unwrap();
    let nothing = stayput::Stdio::new("no-such-program-anywhere");
    hub.add_server("broken", nothing, Options::default()).await.unwrap();
    let error = hub.wait_ready("broken", Duration::from_millis(300)).await.unwrap_err();
    assert!(error.to_string().contains("no-such-program-anywhere"), "{error}");
}

/// E21, E26, invariant 6: opened on one runtime, used on another, dropped on none.
#[test]
fn a_hub_needs_no_runtime() {
    let token = Token::new();
    let hub = hub(&token);
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let session = runtime().block_on(hub.session("a")).unwrap();
    assert_eq!(runtime().block_on(next(&session)).unwrap(), 1);
    assert_eq!(runtime().block_on(next(&session)).unwrap(), 2);
    assert_eq!(token.alive().len(), 1);
    drop(session);
    drop(hub);
    token.gone_blocking();
}

/// Results as the official SDK has them.
#[cfg(feature = "rmcp")]
#[tokio::test]
async fn a_result_can_be_the_sdks() {
    let token = Token::new();
    let hub = hub(&token);
    let session = hub.session("a").await.unwrap();
    let counted = session.call("counter", "count", json!({})).await.unwrap();
    let counted = rmcp::model::CallToolResult::try_from(counted).unwrap();
    let text = serde_json::to_value(&counted).unwrap();
    assert_eq!(text["content"][0]["text"], "1");
}

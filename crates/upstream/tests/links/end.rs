//! End of links: in any order, from any task, at any time.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use stayput_process::Grace;
use stayput_upstream::{
    CallError, CallOptions, EraChoice, Isolation, Limits, LinkOpenError, LinkOwner, LossReason,
    Options,
};

use crate::support::{
    LONG, alive, call, close, links, none_alive, open, params, place, quick, server_with, stdio,
    token, try_call, try_open, until,
};

/// R022, R034, E01: sessions end from other tasks, in another order, all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_end_in_any_order_from_any_task() {
    let links = links();
    let token = token();
    let server = server_with(stdio(&[]).env("TOKEN", token.as_str()), quick());
    let other = server_with(stdio(&["--page", "3"]).env("TOKEN", token.as_str()), quick());
    let places: Vec<LinkOwner> = (0..8).map(|_| place()).collect();
    let opened = places.iter().map(|place| {
        let (links, server, other, place) =
            (links.clone(), server.clone(), other.clone(), place.clone());
        tokio::runtime::Handle::current().spawn(async move {
            // The task that opens the link is long gone when it ends.
            call(&*open(&links, &server, &place).await, "count", "{}").await;
            call(&*open(&links, &other, &place).await, "count", "{}").await;
        })
    });
    for opened in join_all(opened).await {
        opened.unwrap();
    }
    assert_eq!((alive(&token).len(), links.used().processes), (16, 16));
    let ended = [5, 0, 7, 2, 6, 1, 4, 3].map(|at| {
        let (links, session) = (links.clone(), places[at].session);
        tokio::runtime::Handle::current().spawn(async move { links.end(session).await })
    });
    for ended in join_all(ended).await {
        assert!(ended.unwrap().is_empty());
    }
    assert_eq!((alive(&token).len(), links.used().links), (0, 0));
    assert!(links.status().is_empty());
    close(&links).await;
}

/// R022: without links there is nothing to do. Two concurrent ends both return when nothing is left.
#[tokio::test]
async fn ending_twice_equals_ending_once() {
    let links = links();
    let (token, ann) = (token(), place());
    assert!(links.end(ann.session).await.is_empty());
    let stubborn = stdio(&["--ignore-eof"]).env("TOKEN", token.as_str());
    let server = server_with(stubborn.env("DIR", "${session.dir}"), quick());
    drop(open(&links, &server, &ann).await);
    let gone = || async {
        assert!(links.end(ann.session).await.is_empty());
        assert!(alive(&token).is_empty(), "one who ended it was told too early");
    };
    tokio::join!(gone(), gone(), gone());
    gone().await;
    close(&links).await;
}

/// An open while its session ends waits for the end, and then gets a new folder.
#[tokio::test]
async fn session_revived_while_it_ends_starts_anew() {
    let links = links();
    let (token, ann) = (token(), place());
    let stubborn = stdio(&["--ignore-eof"]).env("TOKEN", token.as_str());
    let server = server_with(stubborn.env("DIR", "${session.dir}"), quick());
    let link = open(&links, &server, &ann).await;
    call(&link, "count", "{}").await;
    let (ended, revived) = tokio::join!(biased; links.end(ann.session), async {
        let revived = open(&links, &server, &ann).await;
        assert_eq!(alive(&token).len(), 1, "both at once");
        revived
    });
    assert!(ended.is_empty());
    assert_eq!(call(&revived, "count", "{}").await, "1");
    let folder = call(&revived, "env", r#"{"name":"DIR"}"#).await;
    assert!(std::path::Path::new(&folder).exists(), "removed with the one before");
    drop((link, revived));
    close(&links).await;
}

/// R034, E25: whenever the end comes, waiting openers get an error, and nothing is left.
#[tokio::test]
async fn session_can_end_while_its_link_is_opened() {
    let links = links();
    let token = token();
    for era in [EraChoice::Legacy, EraChoice::Auto] {
        for millis in [0, 1, 2, 4, 8, 16, 32, 64] {
            let stdio = stdio(&["--startup-ms", "20"]).env("TOKEN", token.as_str());
            let server =
                server_with(stdio.env("DIR", "${session.dir}"), Options { era, ..quick() });
            let ann = place();
            let ending = async {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                assert!(links.end(ann.session).await.is_empty());
                (alive(&token), links.used())
            };
            let (opened, (left, used)) =
                tokio::join!(biased; try_open(&links, &server, &ann), ending);
            if let Err(error) = opened {
                assert!(matches!(&*error, LinkOpenError::Ended { .. }), "{error}");
            }
            assert!(left.is_empty(), "{era:?} after {millis} ms");
            assert_eq!((used.links, used.waiting), (0, 0), "{era:?} after {millis} ms");
        }
    }
    assert!(links.status().is_empty());
    close(&links).await;
}

/// E22: a call in flight does not keep a session alive, and fails at once.
#[tokio::test]
async fn call_in_flight_fails_when_its_session_ends() {
    let links = links();
    let ann = place();
    let link = open(&links, &server_with(stdio(&[]), quick()), &ann).await;
    let slow = params("slow", r#"{"ms":60000}"#);
    let slow = link.call("tools/call", Some(&slow), CallOptions::default()).await.unwrap();
    assert!(links.end(ann.session).await.is_empty());
    let error = slow.answer().await.unwrap_err();
    assert_eq!(error.loss().unwrap().reason(), LossReason::Ended);
    let error = try_call(&link, "count", "{}").await.unwrap_err();
    assert!(matches!(error, CallError::Lost { .. }), "{error}");
    drop(link);
    close(&links).await;
}

/// E36: all close concurrently under one deadline.
#[tokio::test]
async fn thirty_links_close_in_parallel() {
    let links = links();
    let (token, pause) = (token(), Duration::from_millis(1_000));
    let stubborn = stdio(&["--ignore-eof"]).env("TOKEN", token.as_str());
    let grace = Grace { quit: pause, term: LONG };
    let server = server_with(stubborn, Options { grace, ..quick() });
    let all: Vec<_> = (0..30).map(|_| place()).collect();
    let held = join_all(all.iter().map(|place| open(&links, &server, place))).await;
    drop(held);
    let begun = tokio::time::Instant::now();
    let closed = links.close(LONG).await;
    assert_eq!((closed.links, closed.left), (30, 0));
    assert!(begun.elapsed() < pause * 15, "one after the other: {:?}", begun.elapsed());
    assert_eq!((alive(&token).len(), links.used().links), (0, 0));
}

/// The deadline holds. Links that miss it are reported and killed.
#[tokio::test]
async fn close_keeps_its_deadline() {
    let links = links();
    let token = token();
    let stubborn = stdio(&["--ignore-eof", "--ignore-term"]).env("TOKEN", token.as_str());
    let grace = Grace { quit: LONG, term: LONG };
    let server = server_with(stubborn, Options { grace, ..quick() });
    drop(open(&links, &server, &place()).await);
    let closed = links.close(Duration::from_millis(100)).await;
    assert_eq!((closed.links, closed.left), (1, 1));
    assert!(alive(&token).is_empty());
    until("its place is free", || links.used().links == 0).await;
}

/// R079: further use is a typed error.
#[tokio::test]
async fn nothing_is_opened_after_the_close() {
    let links = links();
    let token = token();
    let server = server_with(stdio(&[]).env("TOKEN", token.as_str()), quick());
    close(&links).await;
    for era in [EraChoice::Legacy, EraChoice::Auto] {
        let server = server_with(
            stdio(&[]).env("TOKEN", token.as_str()),
            Options {
                era,
                warm: stayput_upstream::SpareOptions { count: 1, ..Default::default() },
                ..quick()
            },
        );
        let error = try_open(&links, &server, &place()).await.unwrap_err();
        assert!(matches!(&*error, LinkOpenError::Ended { .. }), "{error}");
        links.warm(&server);
    }
    assert!(links.profile(&server, &place()).await.is_err());
    assert_eq!(links.close(LONG).await.links, 0, "a second time");
    none_alive(&token).await;
}

/// R034: a probe on behalf of a session that ends is not repeated.
#[tokio::test]
async fn probe_for_an_ending_session_is_not_repeated() {
    let links = links();
    let token = token();
    let slow = stdio(&["--startup-ms", "60000"]).env("TOKEN", token.as_str());
    let (server, ann) = (server_with(slow, quick()), place());
    let asking = tokio::runtime::Handle::current().spawn({
        let (links, ann) = (links.clone(), ann.clone());
        async move { links.profile(&server, &ann).await }
    });
    until("it is asked", || !alive(&token).is_empty()).await;
    assert!(links.end(ann.session).await.is_empty());
    let asked = tokio::time::timeout(LONG, asking).await.expect("it is asked again").unwrap();
    assert!(matches!(&*asked.unwrap_err(), LinkOpenError::Ended { .. }));
    assert!(alive(&token).is_empty());
    close(&links).await;
}

/// A close during an opening ends that opening.
#[tokio::test]
async fn opening_is_ended_by_the_close() {
    for era in [EraChoice::Legacy, EraChoice::Auto] {
        let links = links();
        let token = token();
        let slow = stdio(&["--startup-ms", "60000"]).env("TOKEN", token.as_str());
        let server = server_with(slow, Options { era, ..quick() });
        let ann = place();
        let closing = async {
            until("it has begun", || alive(&token).len() == 1).await;
            close(&links).await;
        };
        let (opened, ()) = tokio::join!(try_open(&links, &server, &ann), closing);
        let error = opened.unwrap_err();
        assert!(matches!(&*error, LinkOpenError::Ended { .. }), "{error}");
        assert!(alive(&token).is_empty());
    }
}

/// E27: links of a changed server are ended, links of unchanged ones stay. The next link reports the loss.
#[tokio::test]
async fn changed_configuration_ends_the_links_of_the_old_one() {
    let links = links();
    let (old_token, token) = (token(), token());
    let old = server_with(stdio(&[]).env("TOKEN", old_token.as_str()), quick());
    let new = server_with(stdio(&[]).env("TOKEN", token.as_str()), quick());
    let (ann, bob) = (place(), place());
    let before = open(&links, &old, &ann).await;
    call(&before, "count", "{}").await;
    let kept = open(&links, &new, &bob).await;
    call(&kept, "count", "{}").await;
    links.reconfigure("another", None).await;
    assert_eq!(call(&before, "count", "{}").await, "2");
    links.reconfigure("test", Some(&new)).await;
    assert!(alive(&old_token).is_empty());
    assert_eq!(before.loss().map(|it| it.reason()), None, "of its own generation");
    let error = try_call(&before, "count", "{}").await.unwrap_err();
    assert_eq!(error.loss().unwrap().reason(), LossReason::Reconfigured);
    assert_eq!(call(&kept, "count", "{}").await, "2");
    // Invariant 3: the loss is reported even without an attachment store.
    let after = open(&links, &new, &ann).await;
    assert_eq!(after.generation(), before.generation().next());
    assert_eq!(after.loss().unwrap().reason(), LossReason::Reconfigured);
    assert_eq!(call(&after, "count", "{}").await, "1");
    links.reconfigure("test", None).await;
    assert!(alive(&token).is_empty());
    assert_eq!(links.used().links, 0);
    drop((before, kept, after));
    close(&links).await;
}

/// E27: a call in flight ends on the old link, later calls wait for that, and no new user gets the old link.
#[tokio::test]
async fn link_of_a_changed_server_ends_with_its_last_call() {
    let links = links();
    let (old_token, token) = (token(), token());
    let old = server_with(stdio(&[]).env("TOKEN", old_token.as_str()), quick());
    let new = server_with(stdio(&[]).env("TOKEN", token.as_str()), quick());
    let (ann, bob) = (place(), place());
    let (before, idle) = (open(&links, &old, &ann).await, open(&links, &old, &bob).await);
    call(&before, "count", "{}").await;
    let slow = params("slow", r#"{"ms":1500}"#);
    let slow = before.call("tools/call", Some(&slow), CallOptions::default()).await.unwrap();
    let retiring = links.retire(&old, Some(&new));
    let running = tokio::runtime::Handle::current().spawn(retiring.run(Duration::from_secs(60)));
    // A session without calls in flight gets the new link at once, the others after their calls.
    let next = open(&links, &new, &bob).await;
    assert_eq!(next.loss().unwrap().reason(), LossReason::Reconfigured);
    assert_eq!(next.generation(), idle.generation().next());
    assert!(next.entry_id() > idle.entry_id());
    assert!(links.find(&old, &ann).is_none(), "nobody new is sent there");
    assert!(before.hint().find(&old).is_none(), "nor who knows where it was");
    let (after, slow) = tokio::join!(open(&links, &new, &ann), slow.answer());
    slow.unwrap();
    assert!(alive(&old_token).is_empty(), "both may have the same folder");
    assert_eq!(after.generation(), before.generation().next());
    assert_eq!(after.loss().unwrap().reason(), LossReason::Reconfigured);
    running.await.unwrap();
    drop((before, idle, next, after));
    close(&links).await;
}

/// A hint finds its link as long as that link may be used.
#[tokio::test]
async fn hint_finds_its_link() {
    let (links, ann) = (links(), place());
    let (server, other) =
        (server_with(stdio(&[]), quick()), server_with(stdio(&["--page", "3"]), quick()));
    let link = open(&links, &server, &ann).await;
    let hint = link.hint();
    assert_eq!(call(&link, "count", "{}").await, "1");
    drop(link);
    let again = hint.find(&server).unwrap();
    assert_eq!(call(&again, "count", "{}").await, "2");
    assert!(hint.find(&other).is_none(), "it leads to one server");
    let options = Options { isolation: Some(Isolation::PerOwner), ..quick() };
    let shared = server_with(stdio(&[]), options);
    assert_eq!(shared.configuration(), server.configuration());
    assert!(hint.find(&shared).is_none(), "which is all that is configured of it");
    // Retired with the same configuration: calls in flight keep the link, and no new user gets it.
    let slow = params("slow", r#"{"ms":600000}"#);
    let slow = again.call("tools/call", Some(&slow), CallOptions::default()).await.unwrap();
    let retiring = links.retire(&server, Some(&server));
    let running = tokio::runtime::Handle::current().spawn(retiring.run(LONG));
    until("it is taken out", || links.find(&server, &ann).is_none()).await;
    assert!(hint.find(&server).is_none());
    assert_eq!(call(&*open(&links, &server, &ann).await, "count", "{}").await, "1");
    slow.cancel();
    drop(again);
    running.await.unwrap();
    // The hint keeps nothing of an ended session alive.
    let hint = links.find(&server, &ann).unwrap().hint();
    assert!(links.end(ann.session).await.is_empty());
    assert!(hint.find(&server).is_none());
    assert!(stayput_upstream::LinkHint::default().find(&server).is_none());
    close(&links).await;
}

/// Retirement does not wait longer than its limit, and a removed server is gone.
#[tokio::test]
async fn retirement_has_a_time_limit() {
    let links = links();
    let (token, ann) = (token(), place());
    let old = server_with(stdio(&[]).env("TOKEN", token.as_str()), quick());
    let link = open(&links, &old, &ann).await;
    let slow = params("slow", r#"{"ms":600000}"#);
    let slow = link.call("tools/call", Some(&slow), CallOptions::default()).await.unwrap();
    links.retire(&old, None).run(Duration::from_millis(100)).await;
    let error = slow.answer().await.unwrap_err();
    assert_eq!(error.loss().unwrap().reason(), LossReason::Reconfigured);
    assert!(alive(&token).is_empty());
    assert_eq!(links.used().links, 0);
    drop(link);
    close(&links).await;
}

/// Limits can change: waiting requests get new places, and a lower limit ends no link.
#[tokio::test]
async fn limits_can_change() {
    let (links, server) = (links(), server_with(stdio(&[]), quick()));
    let held = open(&links, &server, &place()).await;
    let limits = Limits { processes: 1, ..Limits::default() };
    links.set_limits(limits);
    let (one, two) = (links.clone(), server.clone());
    let waiting = tokio::runtime::Handle::current()
        .spawn(async move { try_open(&one, &two, &place()).await.map(drop) });
    while links.used().waiting == 0 {
        tokio::task::yield_now().await;
    }
    links.set_limits(Limits { processes: 2, ..limits });
    waiting.await.unwrap().unwrap();
    call(&held, "count", "{}").await;
    drop(held);
    close(&links).await;
}

/// R077.
#[tokio::test]
async fn restart_begins_the_next_generation() {
    let links = links();
    let (server, ann, bob) = (server_with(stdio(&[]), quick()), place(), place());
    links.restart(&server, &ann, LossReason::Restarted).await;
    let other = open(&links, &server, &bob).await;
    let mut before = open(&links, &server, &ann).await;
    assert!(before.loss().is_none());
    for _ in 0..3 {
        call(&before, "count", "{}").await;
        links.restart(&server, &ann, LossReason::Restarted).await;
        assert!(before.is_gone());
        let after = open(&links, &server, &ann).await;
        assert_eq!(after.generation(), before.generation().next());
        assert_eq!(after.loss().unwrap().reason(), LossReason::Restarted);
        assert_eq!(call(&after, "count", "{}").await, "1");
        before = after;
    }
    assert_eq!(call(&other, "count", "{}").await, "1");
    drop((before, other));
    close(&links).await;
}

/// E28: a server that crashes repeatedly backs off. A single crash does not cause that.
#[tokio::test]
async fn server_that_crashes_repeatedly_backs_off() {
    let links = links();
    let (server, ann) = (Arc::new(server_with(stdio(&[]), quick())), place());
    let mut rests = 0;
    for _ in 0..4 {
        match try_open(&links, &server, &ann).await {
            Ok(link) => drop(try_call(&link, "crash", "{}").await.unwrap_err()),
            Err(error) => {
                let LinkOpenError::BackingOff { pause, last, .. } = &*error else {
                    panic!("{error}")
                };
                assert!(last.contains("code 3"), "{last}");
                assert!(*pause <= Duration::from_secs(30));
                rests += 1;
            }
        }
    }
    assert_eq!(rests, 2, "the first time is forgiven");
    close(&links).await;
}

/// R033, R071, E20: only unused links are closed. The idle time starts at the end of the last call, even if its caller
/// released the link before.
#[tokio::test]
async fn only_links_idle_for_long_enough_are_closed() {
    let links = links();
    let (server, ann, bob, eve) = (server_with(stdio(&[]), quick()), place(), place(), place());
    let held = open(&links, &server, &ann).await;
    let link = open(&links, &server, &bob).await;
    let slow = params("slow", r#"{"ms":400}"#);
    let slow = link.call("tools/call", Some(&slow), CallOptions::default()).await.unwrap();
    drop(link);
    drop(open(&links, &server, &eve).await);
    assert_eq!(links.close_idle(Duration::from_secs(60)), 0);
    assert_eq!(links.close_idle(Duration::ZERO), 1, "one is held, one has a call in flight");
    let since = tokio::time::Instant::now();
    slow.answer().await.unwrap();
    let idle = since.elapsed();
    assert_eq!(links.close_idle(idle.max(Duration::from_millis(200))), 0);
    assert_eq!(links.close_idle(Duration::ZERO), 1);
    assert_eq!(call(&held, "count", "{}").await, "1");
    // A returning session gets a report.
    let back = open(&links, &server, &eve).await;
    assert_eq!(back.loss().unwrap().reason(), LossReason::Evicted);
    drop((held, back));
    close(&links).await;
}

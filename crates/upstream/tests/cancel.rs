//! Invariant 6: a future that is dropped at any await leaks nothing and leaves nothing half done.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "cancel/chaos.rs"]
mod chaos;
mod support;

use std::{future::poll_fn, task::Poll, time::Duration};

use stayput_testkit::{mcp::TestServer, processes};
use stayput_upstream::{
    CallOptions, EraChoice, Limits, LinkOwner, Links, Options, Server, SpareOptions,
};
use support::{
    LONG, alive, call, close, links, links_with, open, params, place, quick,
    remote::{begin, legacy_at},
    server_with, stdio, token, try_open, until,
};
use tokio::{runtime::Handle, sync::Mutex};

/// Files and tasks are counted for the whole process, so these tests run one after the other.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Polls a future this many times and then drops it. Returns its output, if it completed.
async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = Some(Box::pin(future));
    let mut left = times;
    let run = poll_fn(move |cx| {
        let Some(running) = &mut future else { return Poll::Ready(None) };
        if let Poll::Ready(output) = running.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        left -= 1;
        if left == 0 {
            future = None;
            return Poll::Ready(None);
        }
        Poll::Pending
    });
    tokio::time::timeout(LONG, run).await.unwrap()
}

/// Open files and tasks of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Having {
    files: usize,
    tasks: usize,
}

fn having() -> Having {
    let tasks = Handle::current().metrics().num_alive_tasks();
    Having { files: processes::own_open_files(), tasks }
}

/// Waits until there are no more than before.
async fn back_at(before: Having, what: &str) {
    let what = format!("{what}: as before, {before:?}");
    until(&what, || having() == before).await;
}

/// Server with a folder for each session, whose processes carry a token.
fn server(token: &str, era: EraChoice) -> Server {
    let stdio = stdio(&["--startup-ms", "5"]).env("TOKEN", token).env("DIR", "${session.dir}");
    server_with(stdio, Options { era, ..quick() })
}

/// Checks that nothing of a session is left, without waiting.
fn nothing_left(links: &Links, token: &str, what: &str) {
    assert!(alive(token).is_empty(), "{what}: a process is left");
    assert_eq!((links.used().links, links.used().waiting), (0, 0), "{what}");
    assert!(links.status().is_empty(), "{what}");
}

/// Opens and ends a session once before counting, because the first one starts the watchdog, threads and the like.
async fn warmed_up(links: &Links, server: &Server) -> Having {
    let ann = place();
    call(&*open(links, server, &ann).await, "count", "{}").await;
    assert!(links.end(ann.session).await.is_empty());
    until("all tasks are done", || Handle::current().metrics().num_alive_tasks() == 0).await;
    having()
}

async fn open_is_dropped(era: EraChoice) {
    let (links, token) = (links(), token());
    let server = server(&token, era);
    let before = warmed_up(&links, &server).await;
    for polls in 1..1_000 {
        let (ann, what) = (place(), format!("{era:?}, {polls} polls"));
        let opened = polled(polls, try_open(&links, &server, &ann)).await;
        let done = opened.is_some();
        drop(opened);
        assert!(links.end(ann.session).await.is_empty());
        nothing_left(&links, &token, &what);
        back_at(before, &what).await;
        if done {
            break;
        }
    }
    close(&links).await;
}

#[tokio::test]
async fn open_can_be_dropped_at_any_poll() {
    let _alone = ALONE.lock().await;
    open_is_dropped(EraChoice::Legacy).await;
    open_is_dropped(EraChoice::Auto).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_can_be_dropped_at_any_poll_on_any_thread() {
    let _alone = ALONE.lock().await;
    open_is_dropped(EraChoice::Legacy).await;
    open_is_dropped(EraChoice::Auto).await;
}

/// Drops HTTP calls at every poll. The future of a call reads its answer, so a drop must leave nothing behind.
async fn calls_over_http_are_dropped(tool: &str, arguments: &str) {
    let http = TestServer::http(&["--era", "legacy"]).await;
    let before = having();
    let links = links();
    let link = open(&links, &legacy_at(http.url()), &place()).await;
    let mut done = 0;
    for polls in 1..1_000 {
        let made = async { begin(&link, tool, arguments).await.answer().await.unwrap() };
        done += usize::from(polled(polls, made).await.is_some());
        assert_eq!(link.in_flight(), 0, "{tool}, {polls} polls");
        if done > 3 {
            break;
        }
    }
    assert!(done > 3, "{tool} was never done");
    call(&link, "count", "{}").await;
    assert_eq!(link.loss(), None);
    drop(link);
    close(&links).await;
    drop(links);
    back_at(before, tool).await;
}

#[tokio::test]
async fn http_call_can_be_dropped_at_any_poll() {
    let _alone = ALONE.lock().await;
    calls_over_http_are_dropped("count", "{}").await;
    calls_over_http_are_dropped("slow", r#"{"ms":5,"steps":3}"#).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_call_can_be_dropped_at_any_poll_on_any_thread() {
    let _alone = ALONE.lock().await;
    calls_over_http_are_dropped("count", "{}").await;
    calls_over_http_are_dropped("slow", r#"{"ms":5,"steps":3}"#).await;
}

/// Ends sessions at many points of their opening, which is a separate task.
async fn openings_are_ended(era: EraChoice) {
    let (links, token) = (links(), token());
    let server = server(&token, era);
    let before = warmed_up(&links, &server).await;
    let mut opened = 0;
    for turns in 0..400 {
        let (ann, what) = (place(), format!("{era:?}, {turns} turns"));
        let ending = async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            // Most of the opening waits for other processes, so more turns of this task alone do not help.
            tokio::time::sleep(Duration::from_micros(turns * 200)).await;
            assert!(links.end(ann.session).await.is_empty());
            nothing_left(&links, &token, &what);
        };
        let (open, ()) = tokio::join!(biased; try_open(&links, &server, &ann), ending);
        opened += usize::from(open.is_ok());
        drop(open);
        back_at(before, &what).await;
        if opened > 3 {
            break;
        }
    }
    assert!(opened > 3, "it was never fast enough");
    assert_eq!(std::fs::read_dir(sessions_of(&links, &server).await).unwrap().count(), 0);
    close(&links).await;
}

/// Returns the parent of the folders of all sessions.
async fn sessions_of(links: &Links, server: &Server) -> std::path::PathBuf {
    let ann = place();
    let link = open(links, server, &ann).await;
    let folder = call(&link, "env", r#"{"name":"DIR"}"#).await;
    assert!(links.end(ann.session).await.is_empty());
    std::path::Path::new(&folder).parent().unwrap().parent().unwrap().to_owned()
}

#[tokio::test]
async fn opening_can_be_ended_at_any_moment() {
    let _alone = ALONE.lock().await;
    openings_are_ended(EraChoice::Legacy).await;
    openings_are_ended(EraChoice::Auto).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_can_be_ended_at_any_moment_on_any_thread() {
    let _alone = ALONE.lock().await;
    openings_are_ended(EraChoice::Legacy).await;
    openings_are_ended(EraChoice::Auto).await;
}

/// A call is sent completely or not at all. A dropped call is no longer in flight.
#[tokio::test]
async fn call_can_be_dropped_at_any_poll() {
    let _alone = ALONE.lock().await;
    let (links, token) = (links(), token());
    let server = server(&token, EraChoice::Legacy);
    let ann = place();
    let link = open(&links, &server, &ann).await;
    call(&link, "count", "{}").await;
    let before = having();
    let mut calls = 0;
    for polls in 1..1_000 {
        let slow = params("slow", r#"{"ms":20,"steps":4}"#);
        let slow = slow.replace("{\"name\"", "{\"_meta\":{\"progressToken\":1},\"name\"");
        let answered = polled(polls, async {
            link.call("tools/call", Some(&slow), CallOptions::default())
                .await
                .unwrap()
                .answer()
                .await
                .unwrap()
        });
        let answered = answered.await;
        calls += 1;
        assert_eq!(link.in_flight(), 0, "{polls} polls");
        back_at(before, &format!("{polls} polls")).await;
        if answered.is_some() {
            break;
        }
    }
    // Each was sent completely and once, in addition to the first call and this one.
    let stats = support::stats(&link).await;
    assert_eq!(stats["methods"]["tools/call"], calls + 2);
    let cancels = stats["cancels"].as_u64().unwrap();
    assert!((1..calls).contains(&cancels), "{cancels} of {calls}");
    drop(link);
    assert!(links.end(ann.session).await.is_empty());
    close(&links).await;
}

/// Calls that wait for a child which does not read are dropped at any poll.
#[tokio::test]
async fn call_that_waits_to_be_sent_can_be_dropped() {
    let _alone = ALONE.lock().await;
    let (links, token) = (links(), token());
    let link = open(&links, &support::scripted("sleep 1000", &token), &place()).await;
    let large = format!(r#"{{"x":"{}"}}"#, "x".repeat(3 << 20));
    let before = having();
    for polls in 1..4 {
        let calls = (0..4).map(|_| async {
            link.call("m", Some(&large), CallOptions::default()).await.unwrap().answer().await
        });
        let all = futures_util::future::join_all(calls);
        assert!(polled(1, all).await.is_none());
        assert_eq!(link.in_flight(), 0, "{polls} polls");
    }
    back_at(before, "all calls are gone").await;
    drop(link);
    close(&links).await;
}

/// A dropped end completes in the background: processes, places and folders.
#[tokio::test]
async fn end_can_be_dropped_at_any_poll() {
    let _alone = ALONE.lock().await;
    let (links, token) = (links(), token());
    let server = server(&token, EraChoice::Legacy);
    let before = warmed_up(&links, &server).await;
    for polls in 1..1_000 {
        let (ann, what) = (place(), format!("{polls} polls"));
        let link = open(&links, &server, &ann).await;
        let folder = call(&link, "env", r#"{"name":"DIR"}"#).await;
        drop(link);
        let ended = polled(polls, links.end(ann.session)).await;
        assert!(links.status().is_empty(), "{what}");
        back_at(before, &what).await;
        nothing_left(&links, &token, &what);
        assert!(!std::path::Path::new(&folder).exists(), "{what}: its folder is left");
        if ended.is_some() {
            break;
        }
    }
    close(&links).await;
}

/// A dropped close completes in the background, too.
#[tokio::test]
async fn close_can_be_dropped_at_any_poll() {
    let _alone = ALONE.lock().await;
    let token = token();
    let mut before = None;
    for polls in 1..1_000 {
        let what = format!("{polls} polls");
        let closed = {
            let links = links_with(Limits { memory: Some(1 << 40), ..Limits::default() });
            let warm = SpareOptions { count: 1, ..SpareOptions::default() };
            let spared = stdio(&[]).env("TOKEN", token.as_str());
            links.warm(&server_with(spared, Options { warm, ..quick() }));
            let server = server(&token, EraChoice::Legacy);
            drop(open(&links, &server, &place()).await);
            let _opening = polled(1, open(&links, &server, &place())).await;
            let closed = polled(polls, links.close(LONG)).await;
            until("all is gone", || alive(&token).is_empty() && links.used().links == 0).await;
            closed
        };
        until("all tasks are done", || Handle::current().metrics().num_alive_tasks() == 0).await;
        match before {
            None => before = Some(having()),
            Some(before) => back_at(before, &what).await,
        }
        if let Some(closed) = closed {
            assert_eq!(closed.left, 0);
            break;
        }
    }
}

/// Dropping the pool ends its links.
#[tokio::test]
async fn dropped_links_leave_nothing() {
    let _alone = ALONE.lock().await;
    let token = token();
    let mut before = None;
    for _ in 0..3 {
        let links = links();
        let warm = SpareOptions { count: 1, ..SpareOptions::default() };
        let spared = stdio(&[]).env("TOKEN", token.as_str());
        links.warm(&server_with(spared, Options { warm, ..quick() }));
        let server = server(&token, EraChoice::Legacy);
        let ann: LinkOwner = place();
        call(&*open(&links, &server, &ann).await, "count", "{}").await;
        drop(links);
        support::none_alive(&token).await;
        // The task that maintains spares wakes up from time to time, and ends because the pool is gone.
        until("nothing runs but that", || Handle::current().metrics().num_alive_tasks() <= 3).await;
        let files = processes::own_open_files();
        let before = *before.get_or_insert(files);
        until("all files are closed", || processes::own_open_files() <= before).await;
    }
}

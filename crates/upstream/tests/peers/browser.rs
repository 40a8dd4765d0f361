//! `@playwright/mcp`: a server with a whole browser behind it.

use serde_json::json;
use stayput_process::ExitStatus;
use stayput_testkit::peers;
use stayput_upstream::{CallOptions, LossReason, Server, Stdio};
use tempfile::TempDir;

use crate::{
    kit::{Token, Way, alive, arguments, ask, freeze, kill_hard, open, tool},
    support::{close, place, try_call, until},
};

/// Server with a browser for each session, and the token of its processes.
pub(crate) struct Browser {
    pub(crate) server: Server,
    pub(crate) token: Token,
    /// Folder of its sockets, whose paths have to be short.
    _temporary: TempDir,
}

impl Browser {
    pub(crate) fn new() -> Self {
        let token = Token::new();
        let temporary = tempfile::Builder::new().prefix("pw").tempdir().unwrap();
        let server = server(&token, temporary.path().to_str().unwrap());
        Self { server, token, _temporary: temporary }
    }
}

/// Entry of the recipe, with settings that keep files out of the home folder of the user who runs the test.
fn server(token: &Token, temporary: &str) -> Server {
    let stdio = program(token, temporary).args(["--user-data-dir=${session.dir}/profile"]);
    let stdio = stdio.env("XDG_CACHE_HOME", "${session.dir}/cache");
    Server::new("browser", stdio).unwrap()
}

fn program(token: &Token, temporary: &str) -> Stdio {
    let chromium = peers::chromium();
    let args = [
        "--headless",
        "--no-sandbox",
        "--executable-path",
        chromium.to_str().unwrap(),
        "--output-dir=${session.dir}/output",
    ];
    let stdio = token.stdio(&peers::playwright(), &args).env("TMPDIR", temporary);
    stdio.env("XDG_CONFIG_HOME", "${session.dir}/config")
}

/// Parameters that open a page with this text.
pub(crate) fn page(text: &str) -> serde_json::Value {
    json!({ "url": format!("data:text/html,<title>{text}</title><h1>{text}</h1>") })
}

/// Returns all processes of one browser, its server included.
fn of_profile(token: &Token, profile: &str) -> Vec<u32> {
    let mut found = token.tree();
    found.retain(|pid| arguments(*pid).contains(profile));
    found
}

/// Freezes the browser processes among these, but not the server that drives them. A healthy browser would notice the
/// end of its server and exit by itself.
pub(crate) fn frozen(pids: &[u32]) -> Vec<u32> {
    let mut browser = pids.to_vec();
    browser.retain(|pid| arguments(*pid).contains("chrom") && !is_driver(*pid));
    // The browser itself and its subprocesses.
    assert!(browser.len() > 3, "{:?}", alive(pids));
    browser.iter().copied().for_each(freeze);
    browser
}

fn is_driver(pid: u32) -> bool {
    arguments(pid).contains("playwright/mcp/cli.js")
}

/// Two sessions have two browsers. An open page stays open, and the end of a session ends its whole browser.
async fn browsers_are_apart(way: Way) {
    let (links, browser) = (way.links(), Browser::new());
    let (ann, ben) = (place(), place());
    for (place, text) in [(&ann, "apples"), (&ben, "bananas")] {
        let link = open(&links, &browser.server, place).await;
        tool(&link, "browser_navigate", &page(text)).await;
    }
    for (place, text, other) in [(&ann, "apples", "bananas"), (&ben, "bananas", "apples")] {
        let link = open(&links, &browser.server, place).await;
        let seen = tool(&link, "browser_snapshot", &json!({})).await;
        assert!(seen.contains(&format!("heading \"{text}\"")), "{seen}");
        assert!(!seen.contains(other), "{seen}");
    }
    let ann_id = ann.session.to_string();
    let of_ann = of_profile(&browser.token, &ann_id);
    // The server, the browser and its subprocesses.
    assert!(of_ann.len() > 3, "{of_ann:?}");
    assert!(links.end(ann.session).await.is_empty());
    assert_eq!(alive(&of_ann), []);
    assert_eq!(of_profile(&browser.token, &ann_id), [0_u32; 0]);

    let link = open(&links, &browser.server, &ben).await;
    let seen = tool(&link, "browser_snapshot", &json!({})).await;
    assert!(seen.contains("bananas"), "{seen}");
    drop(link);
    let of_ben = browser.token.tree();
    assert!(of_ben.len() > 3, "{of_ben:?}");
    assert!(links.end(ben.session).await.is_empty());
    assert_eq!(alive(&of_ben), []);
    assert_eq!(browser.token.tree(), [0_u32; 0]);
    close(&links).await;
}

/// R034, invariant 5: the browser leads its own process group, and ends with the link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_session_has_a_browser_that_ends_with_it() {
    if !peers::are_left_out() {
        browsers_are_apart(Way::Local).await;
    }
}

/// Runs the same below a warden.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_session_has_a_browser_below_a_warden() {
    if !peers::are_left_out() {
        browsers_are_apart(Way::Wardened).await;
    }
}

/// The reason for the recipe: by default all share one profile in the user's cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_with_one_profile_cannot_both_have_a_browser() {
    if peers::are_left_out() {
        return;
    }
    let (links, token) = (Way::Local.links(), Token::new());
    let folder = tempfile::Builder::new().prefix("pw").tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let stdio = program(&token, folder).env("XDG_CACHE_HOME", folder);
    let server = Server::new("browser", stdio).unwrap();
    let first = open(&links, &server, &place()).await;
    tool(&first, "browser_navigate", &page("apples")).await;
    let second = open(&links, &server, &place()).await;
    let call = json!({ "name": "browser_navigate", "arguments": page("bananas") });
    let refused = ask(&second, "tools/call", &call).await;
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(refused.to_string().contains("already in use"), "{refused}");
    drop((first, second));
    close(&links).await;
    assert_eq!(token.tree(), [0_u32; 0]);
}

/// Invariants 3 and 5: if the server is killed, its browser is killed here, and the loss is reported.
async fn a_leader_is_killed(way: Way) {
    let (links, browser) = (way.links(), Browser::new());
    let ann = place();
    let link = open(&links, &browser.server, &ann).await;
    tool(&link, "browser_navigate", &page("apples")).await;
    let before = browser.token.tree();
    let browser_pids = frozen(&before);
    assert_eq!(before.len(), browser_pids.len() + 1);
    kill_hard(*before.iter().find(|pid| is_driver(**pid)).unwrap());
    until("the end of the browser", || alive(&before).is_empty()).await;
    assert_eq!(browser.token.tree(), [0_u32; 0]);

    let error = try_call(&link, "browser_snapshot", "{}").await.unwrap_err();
    let reason = error.loss().unwrap().reason();
    assert_eq!(reason, LossReason::Exited(ExitStatus::Signal(9)), "{error}");
    let generation = link.generation();
    drop(link);
    let again = open(&links, &browser.server, &ann).await;
    assert_eq!(again.generation(), generation.next());
    assert_eq!(again.loss().unwrap().reason(), reason);
    let seen = tool(&again, "browser_snapshot", &json!({})).await;
    assert!(!seen.contains("apples"), "{seen}");
    drop(again);
    assert!(links.end(ann.session).await.is_empty());
    assert_eq!(browser.token.tree(), [0_u32; 0]);
    close(&links).await;
}

/// E25, with local children.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browser_ends_with_its_killed_server() {
    if !peers::are_left_out() {
        a_leader_is_killed(Way::Local).await;
    }
}

/// Runs the same below a warden.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browser_ends_with_its_killed_server_below_a_warden() {
    if !peers::are_left_out() {
        a_leader_is_killed(Way::Wardened).await;
    }
}

/// The end of a session does not wait for a hanging browser.
async fn a_hanging_browser_is_ended(way: Way) {
    let (links, browser) = (way.links(), Browser::new());
    let ann = place();
    let link = open(&links, &browser.server, &ann).await;
    tool(&link, "browser_navigate", &page("apples")).await;
    let before = browser.token.tree();
    frozen(&before);
    let call =
        link.call("tools/call", Some(r#"{"name":"browser_snapshot"}"#), CallOptions::default());
    let call = call.await.unwrap();
    assert!(links.end(ann.session).await.is_empty());
    assert_eq!(call.answer().await.unwrap_err().loss().unwrap().reason(), LossReason::Ended);
    assert_eq!(alive(&before), []);
    close(&links).await;
    assert_eq!(browser.token.tree(), [0_u32; 0]);
}

/// R034, with local children.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_browser_ends_with_its_session() {
    if !peers::are_left_out() {
        a_hanging_browser_is_ended(Way::Local).await;
    }
}

/// Runs the same below a warden.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_browser_ends_with_its_session_below_a_warden() {
    if !peers::are_left_out() {
        a_hanging_browser_is_ended(Way::Wardened).await;
    }
}

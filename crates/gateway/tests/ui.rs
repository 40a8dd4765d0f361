//! Dashboard in a real browser, against a real gateway. The cases are in `ui/cases.mjs`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "ui/page.rs"]
mod page;
mod support;

use serde_json::json;
use stayput_testkit::{peers, program};

use crate::{
    page::{Dashboard, token},
    support::{Gateway, gone, mark, stdio},
};

/// The page shows sessions, calls, losses and events as they happen, and ends links and sessions.
#[tokio::test]
async fn session_is_watched_and_ended() {
    if peers::are_left_out() {
        return;
    }
    let mark = mark("ui-watch");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let dashboard = Dashboard::open(&gateway);
    dashboard.run("session_is_watched_and_ended", json!({})).await;
    assert!(dashboard.stop().success());
    drop(gateway);
    gone(&mark).await;
}

/// The page says what named the session of each request, and which classes were absent.
#[tokio::test]
async fn chats_in_one_session_are_explained() {
    if peers::are_left_out() {
        return;
    }
    let mark = mark("ui-why");
    let stayput = json!({ "ui": { "show_arguments": true } });
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), stayput).await;
    let dashboard = Dashboard::open(&gateway);
    dashboard.run("chats_in_one_session_are_explained", json!({})).await;
    drop((dashboard, gateway));
    gone(&mark).await;
}

/// Names of servers, tools, clients and sessions, and the output of processes, are text on the page.
#[tokio::test]
async fn hostile_names_are_text() {
    if peers::are_left_out() {
        return;
    }
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ui/hostile_server.mjs");
    let entry = json!({ "command": peers::node(), "args": [server] });
    let gateway = Gateway::start(json!({ "test": entry })).await;
    let dashboard = Dashboard::open(&gateway);
    dashboard.run("hostile_names_are_text", json!({})).await;
}

/// Without a credential with the role nothing is shown, and a login ends with its token.
#[tokio::test]
async fn access_needs_a_credential() {
    if peers::are_left_out() {
        return;
    }
    let mark = mark("ui-access");
    let ((admin, admin_entry), (user, user_entry)) = (token(&["ops", "--admin"]), token(&["ann"]));
    let auth = |tokens| json!({ "auth": { "tokens": tokens } });
    let servers = json!({ "test-server-name": stdio(&mark, &[]) });
    let both = auth(json!({ "ops": admin_entry, "ann": user_entry.clone() }));
    let gateway = Gateway::with(servers, both).await;
    let dashboard = Dashboard::open(&gateway);
    let without: serde_json::Value = serde_json::from_str(&gateway.configuration()).unwrap();
    let mut without = without;
    without["stayput"]["auth"]["tokens"] = json!({ "ann": user_entry });
    let given = json!({
        "admin": admin, "user": user, "revoke": { "file": gateway.config(), "text": without.to_string() },
    });
    dashboard.run("access_needs_a_credential", given).await;
    drop((dashboard, gateway));
    gone(&mark).await;
}

/// With 10,000 sessions the table renders few rows, asks seldom, and scrolls as with 100.
#[tokio::test]
async fn many_sessions_stay_quick() {
    if peers::are_left_out() {
        return;
    }
    let gateway = async |count: usize| {
        let limits = json!({ "limits": { "sessions_per_owner": 20_000 } });
        let gateway = Gateway::with(json!({ "test": stdio("ui-many", &[]) }), limits).await;
        page::open_sessions(&gateway, count).await;
        gateway
    };
    let (few, many) = (gateway(100).await, gateway(10_000).await);
    let (small, large) = (Dashboard::open(&few), Dashboard::open(&many));
    let given = json!({ "few": small.url, "many": large.url });
    large.run("many_sessions_stay_quick", given).await;
}

/// No page violates WCAG at level A or AA, light or dark, wide or narrow. The screenshots go to the docs.
#[tokio::test]
async fn pages_are_accessible() {
    if peers::are_left_out() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let notes = json!({ "command": program("stayput"), "args": ["demo-server"] });
    let servers = json!({ "notes": notes, "browser": page::playwright(folder.path()) });
    let (_, entry) = token(&["ops", "--admin"]);
    let gateway = Gateway::start(servers).await;
    let guarded = Gateway::with(json!({}), json!({ "auth": { "tokens": { "ops": entry } } })).await;
    let dashboard = Dashboard::open(&gateway);
    let shots = std::env::var_os("STAYPUT_SCREENSHOTS").map(std::path::PathBuf::from);
    let shots = shots.unwrap_or_else(|| folder.path().to_owned());
    let given = json!({ "folder": shots, "login": format!("{}/ui/", guarded.url) });
    dashboard.run("pages_are_accessible", given).await;
}

/// Samples are taken by one task while a page is open, and by none otherwise.
#[tokio::test]
async fn samples_need_an_open_page() {
    if peers::are_left_out() {
        return;
    }
    let gateway = Gateway::start(json!({})).await;
    let dashboard = Dashboard::open(&gateway);
    let socket = gateway.folder.path().join("store.db.d/socket");
    dashboard.run("samples_need_an_open_page", json!({ "counts": { "socket": socket } })).await;
}

/// The program that opens the browser gets a private file, because every user of the machine can read arguments.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn token_is_no_argument_of_the_browser() {
    let gateway = Gateway::start(json!({})).await;
    let opened = page::open_browser(&gateway).await;
    let path = opened.arguments.trim();
    assert!(path.ends_with("/open.html") && !path.contains("stp_"), "{path}");
    assert_eq!(opened.modes, "700 600\n");
    assert!(opened.page.contains("url=http://127.0.0.1:"), "{}", opened.page);
    assert!(opened.page.contains("/ui/#token=stp_"), "{}", opened.page);
    let folder = std::path::Path::new(path).parent().unwrap();
    assert!(!folder.exists(), "the folder is removed at the end");
}

//! Real servers: `server-memory` and Playwright.

use crate::support::{ProcessMarker, TEST_TIMEOUT};
use serde_json::json;
use stayput::{Hub, Session, Stdio, SubAgent as _};
use stayput_testkit::peers;

fn stdio(peer: &peers::Peer) -> Stdio {
    let args = peer.args.iter().map(|arg| arg.to_str().unwrap());
    let stdio = Stdio::new(peer.program.to_str().unwrap()).args(args);
    let env = peer.env.iter().map(|(name, value)| (*name, value.to_str().unwrap()));
    env.fold(stdio, |stdio, (name, value)| stdio.env(name, value))
}

/// `server-memory` with one file per session, as in the recipes.
fn memory_server(marker: &ProcessMarker) -> Stdio {
    let file = "${session.dir}/memory.jsonl";
    marker.apply(stdio(&peers::memory())).env("MEMORY_FILE_PATH", file)
}

async fn add_entity(hub: &Hub, name: &str) {
    let entity = json!({ "name": name, "entityType": "person", "observations": ["likes tea"] });
    hub.call("memory", "create_entities", json!({ "entities": [entity] })).await.unwrap();
}

async fn read_graph(hub: &Hub) -> String {
    hub.call("memory", "read_graph", json!({})).await.unwrap().text()
}

/// R037, R064: the run and its sub-agents see it, and no other run does.
#[tokio::test]
async fn memory_belongs_to_its_run() {
    if peers::are_left_out() {
        return;
    }
    let marker = ProcessMarker::new();
    let hub = Hub::builder().server("memory", memory_server(&marker)).build().unwrap();
    hub.run(async {
        add_entity(&hub, "Ann").await;
        let (own, shared) = tokio::join!(
            async {
                add_entity(&hub, "Ben").await;
                read_graph(&hub).await
            }
            .isolated("memory"),
            read_graph(&hub),
        );
        assert!(own.contains("Ben") && !own.contains("Ann"), "{own}");
        assert!(shared.contains("Ann") && !shared.contains("Ben"), "{shared}");
        assert!(read_graph(&hub).await.contains("Ann"));
    })
    .await;
    assert!(marker.processes().is_empty());
    let next = hub.run(read_graph(&hub)).await;
    assert!(!next.contains("Ann"), "{next}");
    hub.close(TEST_TIMEOUT).await;
    assert!(marker.processes().is_empty());
}

/// Playwright with one profile per session, as in the recipes.
fn browser_server(marker: &ProcessMarker, temporary: &std::path::Path) -> Stdio {
    marker
        .apply(stdio(&peers::playwright()))
        .args(["--headless", "--no-sandbox", "--executable-path"])
        .args([peers::chromium().to_str().unwrap()])
        .args(["--output-dir=${session.dir}/output", "--user-data-dir=${session.dir}/profile"])
        .env("TMPDIR", temporary.to_str().unwrap())
        .env("XDG_CONFIG_HOME", "${session.dir}/config")
        .env("XDG_CACHE_HOME", "${session.dir}/cache")
}

async fn open_page(session: &Session, text: &str) {
    let url = format!("data:text/html,<title>{text}</title><h1>{text}</h1>");
    session.call("browser", "browser_navigate", json!({ "url": url })).await.unwrap();
}

async fn snapshot(session: &Session) -> String {
    session.call("browser", "browser_snapshot", json!({})).await.unwrap().text()
}

/// R064, R102: the page of one conversation is still open at its next call.
#[tokio::test]
async fn browser_belongs_to_its_conversation() {
    if peers::are_left_out() {
        return;
    }
    let marker = ProcessMarker::new();
    // Playwright creates sockets there, whose paths must be short.
    let temporary = tempfile::Builder::new().prefix("pw").tempdir().unwrap();
    let browser = browser_server(&marker, temporary.path());
    let hub = Hub::builder().server("browser", browser).build().unwrap();
    let (ann, ben) = (hub.session("ann").await.unwrap(), hub.session("ben").await.unwrap());
    tokio::join!(open_page(&ann, "Page of Ann"), open_page(&ben, "Page of Ben"));
    let (of_ann, of_ben) = tokio::join!(snapshot(&ann), snapshot(&ben));
    assert!(of_ann.contains("Page of Ann") && of_ben.contains("Page of Ben"), "{of_ann} {of_ben}");
    ann.end().await.unwrap();
    assert!(snapshot(&ben).await.contains("Page of Ben"));
    hub.close(TEST_TIMEOUT).await;
    marker.wait_until_gone().await;
}

/// R064, R037: the page is open at each call of the run and for its sub-agents, and in no other run.
#[tokio::test]
async fn browser_belongs_to_its_run() {
    if peers::are_left_out() {
        return;
    }
    let marker = ProcessMarker::new();
    let temporary = tempfile::Builder::new().prefix("pw").tempdir().unwrap();
    let hub = Hub::builder()
        .server("browser", browser_server(&marker, temporary.path()))
        .build()
        .unwrap();
    let open_page = async |text: &str| {
        let url = format!("data:text/html,<title>{text}</title><h1>{text}</h1>");
        hub.call("browser", "browser_navigate", json!({ "url": url })).await.unwrap();
    };
    let page = async || hub.call("browser", "browser_snapshot", json!({})).await.unwrap().text();
    hub.run(async {
        open_page("Page of the run").await;
        let own = async {
            open_page("Page of its own").await;
            page().await
        };
        let (own, shared) = tokio::join!(own.isolated("browser"), page());
        assert!(
            own.contains("Page of its own") && shared.contains("Page of the run"),
            "{own} {shared}"
        );
        assert!(page().await.contains("Page of the run"));
    })
    .await;
    assert!(!hub.run(page()).await.contains("Page of"));
    hub.close(TEST_TIMEOUT).await;
    marker.wait_until_gone().await;
}

//! Hooks of the application: a keeper of session ids, notifications outside of calls, variables at first use, own stores.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{ProcessMarker, TEST_TIMEOUT};
use async_trait::async_trait;
use serde_json::json;
use stayput::{Error, Http, Hub, KeptLink, Options, Session, SessionIdKeeper};
use stayput_testkit::{mcp::TestServer, program};

async fn count_on(session: &Session) -> Result<u64, Error> {
    let counted = session.call("remote", "count", json!({})).await?;
    Ok(counted.text().parse().unwrap())
}

/// Keeper in memory, by the name of the server.
#[derive(Default)]
struct Kept(Mutex<BTreeMap<String, String>>, Mutex<Vec<String>>);

impl Kept {
    fn note(&self, what: &str, link: &KeptLink) {
        let name = link.session_name.as_deref().unwrap_or("-");
        self.1.lock().unwrap().push(format!("{what} {} {name}", link.server.name()));
    }

    fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.1.lock().unwrap())
    }
}

#[async_trait]
impl SessionIdKeeper for Kept {
    async fn load(&self, link: &KeptLink) -> Result<Option<String>, String> {
        // The whole configuration is there (R116).
        assert!(!link.server.is_process() && link.server.options() == &Options::default());
        Ok(self.0.lock().unwrap().get(link.server.name()).cloned())
    }

    async fn save(&self, link: &KeptLink, text: &str) -> Result<(), String> {
        self.note("save", link);
        self.0.lock().unwrap().insert(link.server.name().to_owned(), text.to_owned());
        Ok(())
    }

    async fn clear(&self, link: &KeptLink) -> Result<(), String> {
        self.note("clear", link);
        self.0.lock().unwrap().remove(link.server.name());
        Ok(())
    }
}

/// R116, R119: a run chooses where the ids of its sessions on HTTP servers are kept; the next run with that keeper, in
/// another hub, goes on with them, and one without it does not.
#[tokio::test]
async fn run_continues_with_the_ids_of_its_keeper() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let hub = || Hub::builder().server("remote", Http::new(server.url())).build().unwrap();
    let (first, second) = (hub(), hub());
    let keeper = Arc::new(Kept::default());
    let run = async |hub: &Hub, keeper: Option<&Arc<Kept>>| {
        let counting = async { hub.call("remote", "count", json!({})).await.unwrap().text() };
        match keeper {
            Some(keeper) => hub.run_keeping(keeper.clone(), counting).await,
            None => hub.run(counting).await,
        }
    };
    assert_eq!(run(&first, Some(&keeper)).await, "1");
    assert_eq!(keeper.notes(), ["save remote -"]);
    let deleted = server.counted("deletes").await;
    assert_eq!(run(&first, Some(&keeper)).await, "2", "the same process");
    assert_eq!(run(&second, Some(&keeper)).await, "3", "another one");
    assert_eq!(server.counted("deletes").await, deleted + 1, "only the probe of the second hub");
    assert_eq!(run(&second, None).await, "1", "a run without a keeper has its own");
    assert_eq!(run(&second, Some(&Arc::default())).await, "1", "so has one with another keeper");
    let chat = first.session("chat").await.unwrap().with_id_keeper(keeper.clone());
    assert_eq!(count_on(&chat).await.unwrap(), 4);
    keeper.notes();
    chat.end().await.unwrap();
    assert_eq!(keeper.notes(), ["clear remote chat"]);
    assert_eq!(run(&first, Some(&keeper)).await, "1", "an ended session is not continued");
}

/// R116, invariant 3: a kept id that the server does not know any more is a loss, once, and is removed.
#[tokio::test]
async fn kept_id_that_the_server_forgot_is_a_loss() {
    let mut server = TestServer::http(&["--era", "legacy"]).await;
    let hub = Hub::builder().server("remote", Http::new(server.url())).build().unwrap();
    let keeper = Arc::new(Kept::default());
    let chat = hub.ephemeral().with_id_keeper(keeper.clone());
    assert_eq!(count_on(&chat).await.unwrap(), 1);
    drop(chat);
    server.restart().await;
    keeper.notes();
    let next = hub.ephemeral().with_id_keeper(keeper.clone());
    let lost = count_on(&next).await.unwrap_err();
    assert_eq!(lost.reason(), Some("session_unknown"), "{lost}");
    assert_eq!(keeper.notes(), ["save remote -", "clear remote -"]);
    assert_eq!(count_on(&next).await.unwrap(), 1);
}

/// Changed lists and updated resources come outside of calls, from servers of both eras.
#[tokio::test]
async fn notifications_outside_of_calls_are_heard() {
    for era in ["legacy", "modern"] {
        let server = TestServer::http(&["--era", era]).await;
        let hub = Hub::builder().server("remote", Http::new(server.url())).build().unwrap();
        let chat = hub.session("chat").await.unwrap();
        let uri = chat.resources("remote").await.unwrap()[0].uri.clone();
        let mut heard = chat.listen("remote", &[&uri]).await.unwrap();
        // Notifications from before the stream is open are lost, so the server sends them again and again.
        let repeating = async {
            loop {
                chat.call("remote", "notify", json!({})).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let hearing = async {
            let mut methods = BTreeSet::new();
            while methods.len() < 2 {
                let next = heard.next().await.unwrap();
                if next.method.ends_with("updated") {
                    assert_eq!(next.params["uri"], uri, "{era}");
                }
                methods.insert(next.method);
            }
            methods
        };
        let methods = tokio::select! {
            methods = tokio::time::timeout(TEST_TIMEOUT, hearing) => methods.expect(era),
            () = repeating => unreachable!(),
        };
        let expected = ["notifications/resources/updated", "notifications/tools/list_changed"];
        assert!(methods.iter().eq(expected), "{era}: {methods:?}");
        let refused = chat.listen("remote", &["test://no/such/resource"]).await.map(drop);
        assert!(era == "modern" || refused.unwrap_err().kind() == "protocol_error");
        chat.end().await.unwrap();
        // The link to a modern server is shared by all sessions, and does not end with one.
        let ended = async { while era == "legacy" && heard.next().await.is_some() {} };
        tokio::time::timeout(TEST_TIMEOUT, ended).await.unwrap();
    }
}

/// A log message comes outside of calls, too: from a server of the legacy era, whose link is open.
#[tokio::test]
async fn log_messages_outside_of_calls_are_heard() {
    let marker = ProcessMarker::new();
    let server = TestServer::http(&["--era", "legacy"]).await;
    let builder = Hub::builder().server("remote", Http::new(server.url()));
    let hub = builder.server("local", marker.server()).build().unwrap();
    let chat = hub.session("chat").await.unwrap();
    for name in ["remote", "local"] {
        let mut heard = chat.listen(name, &[]).await.unwrap();
        let hearing = async {
            loop {
                let next = heard.next().await.unwrap();
                if next.method == "notifications/message" {
                    return next.params["data"].clone();
                }
            }
        };
        let mut hearing = std::pin::pin!(hearing);
        let message = loop {
            chat.call(name, "notify", json!({ "log": "the disk is full" })).await.unwrap();
            // A message from before the stream is open is lost, so the server logs again.
            let heard = tokio::time::timeout(Duration::from_secs(2), hearing.as_mut()).await;
            if let Ok(message) = heard {
                break message;
            }
        };
        assert_eq!(message, "the disk is full", "{name}");
    }
    chat.end().await.unwrap();
    marker.wait_until_gone().await;
}

/// R122: so have the URL and the headers of a server over HTTP.
#[tokio::test]
async fn url_and_headers_are_resolved_at_the_first_use() {
    let (server, folder) =
        (TestServer::http(&["--era", "legacy"]).await, tempfile::tempdir().unwrap());
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("url", "http://127.0.0.1:9/mcp");
    write("who", "built");
    let entry = json!({ "url": "${file:url}", "headers": { "x-who": "${file:who}" } });
    let text = json!({ "mcpServers": { "remote": entry } }).to_string();
    let hub = Hub::builder().config_text(&text, folder.path().join("mcp.json")).build().unwrap();
    write("url", server.url());
    write("who", "used");
    let chat = hub.session("chat").await.unwrap();
    let who = async || {
        let call = chat.call("remote", "header", json!({ "name": "x-who" }));
        call.await.unwrap().text()
    };
    assert_eq!(who().await, "used");
    write("who", "later");
    assert_eq!(who().await, "used", "the server of a session does not change");
}

/// R122: a variable of the configuration has the value that it has at the first use of the server.
#[tokio::test]
async fn variables_are_resolved_at_the_first_use() {
    let (marker, folder) = (ProcessMarker::new(), tempfile::tempdir().unwrap());
    let (file, server) = (folder.path().join(".env"), program("stayput-testserver"));
    let write = |label: &str| std::fs::write(&file, format!("LABEL={label}\n")).unwrap();
    write("built");
    let entry = json!({
        "command": server,
        "args": ["stdio", "--era", "legacy"],
        "env": { "TOKEN": marker.value() },
        "envFile": ".env",
    });
    let text = json!({ "mcpServers": { "counter": entry } }).to_string();
    let hub = Hub::builder().config_text(&text, folder.path().join("mcp.json")).build().unwrap();
    write("used");
    hub.run(async {
        let label = async || {
            let call = hub.call("counter", "env", json!({ "name": "LABEL" }));
            call.await.unwrap().text()
        };
        assert_eq!(label().await, "used");
        write("later");
        assert_eq!(label().await, "used", "the server of a session does not change");
    })
    .await;
    marker.wait_until_gone().await;
}

/// A ticket can be taken while the session goes on: both hubs use the session on the server.
#[tokio::test]
async fn ticket_leaves_the_session_alive() {
    let server = TestServer::http(&["--era", "legacy"]).await;
    let hub = || Hub::builder().server("remote", Http::new(server.url())).build().unwrap();
    let (first, second) = (hub(), hub());
    let chat = first.session("chat").await.unwrap();
    assert_eq!(count_on(&chat).await.unwrap(), 1);
    let there = second.resume(&chat.ticket().await.unwrap()).await.unwrap();
    assert_eq!(count_on(&there).await.unwrap(), 2);
    assert_eq!(count_on(&chat).await.unwrap(), 3);
}

/// A store of the application's own is used as any other; secrets in it are sealed by its key, and a hub with another key
/// does not open it.
#[tokio::test]
async fn store_of_the_application_is_sealed_by_its_key() {
    let clock = Arc::new(stayput_core::SystemClock);
    let store: Arc<dyn stayput::Store> = Arc::new(stayput_core::MemoryStore::new(clock));
    let server = TestServer::http(&["--era", "legacy"]).await;
    let hub = async |keys: &[&str]| {
        let builder = Hub::builder().server("remote", Http::new(server.url()));
        let builder = keys.iter().fold(builder, |builder, key| builder.seal(&key.repeat(64)));
        builder.own_store(store.clone()).open().await
    };
    let first = hub(&["1"]).await.unwrap();
    assert_eq!(count_on(&first.session("chat").await.unwrap()).await.unwrap(), 1);
    first.close(TEST_TIMEOUT).await;
    let other = hub(&["2"]).await.unwrap_err();
    assert!(other.to_string().contains("another key"), "{other}");
    assert_eq!(hub(&["x"]).await.unwrap_err().kind(), "invalid_input");
    let both = hub(&["2", "1"]).await.unwrap();
    assert_eq!(count_on(&both.session("chat").await.unwrap()).await.unwrap(), 2);
    both.close(TEST_TIMEOUT).await;
    let unsealed = Hub::builder().own_store(store.clone()).open().await.unwrap_err();
    assert!(unsealed.to_string().contains("`seal`"), "{unsealed}");
}

/// A store that cannot be opened is an error with its cause.
#[cfg(feature = "stores")]
#[tokio::test]
async fn store_that_cannot_be_opened_is_an_error_with_a_source() {
    use std::error::Error as _;
    let folder = tempfile::tempdir().unwrap();
    let url = "sqlite:/dev/null/x.db";
    let error = Hub::builder().store(url).folders(folder.path()).open().await.unwrap_err();
    assert_eq!(error.kind(), "store_failed", "{error}");
    assert!(error.source().is_some());
}

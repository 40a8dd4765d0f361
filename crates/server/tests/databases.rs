//! The examples on real databases: with restarts, and with two replicas (R165, R166).
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::json;
use support::{Client, Example};

/// R061, R065, R166: state survives a reconnect, a kill and a change of the replica, in both eras.
async fn assert_state_survives(store: &str) {
    let mut one = Example::start("cart", store).await;
    let two = Example::start("cart", store).await;
    let both = [one.url.as_str(), two.url.as_str()];
    let mut modern = Client::between(&both);
    let handle = modern.start().await;
    let mut legacy = Client::between(&both).initialize().await;
    for n in 1..=4 {
        let starts = format!("{n} in the cart");
        let arguments = json!({ "sku": format!("m{n}"), "session_id": handle });
        assert!(modern.text("add", arguments).await.starts_with(&starts));
        assert!(legacy.text("add", json!({ "sku": format!("l{n}") })).await.starts_with(&starts));
    }
    one.restart().await;
    for _ in 0..2 {
        assert_eq!(
            modern.text("show", json!({ "session_id": handle })).await,
            "4 in the cart: m1, m2, m3, m4"
        );
        assert_eq!(legacy.text("show", json!({})).await, "4 in the cart: l1, l2, l3, l4");
    }
    // R165: a name chosen by the client finds the same session on every replica.
    for n in 1..=2 {
        let arguments = json!({ "sku": "x", "session_id": "key:trip" });
        assert!(modern.text("add", arguments).await.starts_with(&format!("{n} in the cart")));
    }
    // A session ended on one replica is refused by the other, even if that one has it in its cache.
    modern.call("session_end", json!({ "session_id": handle })).await;
    for _ in 0..2 {
        let over = modern.error("show", json!({ "session_id": handle })).await;
        assert!(over.contains("was ended"), "{over}");
    }
    assert_eq!(legacy.send(http::Method::DELETE, &serde_json::Value::Null).await.status, 202);
    support::wait_until("the other replica refuses the connection", async || {
        let answers = [
            legacy.ask("ping", json!({})).await.status,
            legacy.ask("ping", json!({})).await.status,
        ];
        answers == [404, 404]
    })
    .await;
}

/// R057: 64 clients on two replicas change one value, and no change is lost.
async fn assert_no_update_is_lost(store: &str) {
    let (one, two) = (Example::start("cart", store).await, Example::start("cart", store).await);
    let client = Client::between(&[&one.url, &two.url]);
    let handle = client.clone().start().await;
    let clients = (0..64).map(|n| {
        let (mut client, handle) = (Client { next: n, ..client.clone() }, handle.clone());
        tokio::runtime::Handle::current().spawn(async move {
            client.text("add", json!({ "sku": n.to_string(), "session_id": handle })).await
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    let shown = client.clone().text("show", json!({ "session_id": handle })).await;
    assert!(shown.starts_with("64 in the cart"), "{shown}");
}

mod sqlite {
    #[tokio::test]
    async fn state_survives_restart_and_replica_change() {
        let folder = tempfile::tempdir().unwrap();
        super::assert_state_survives(&format!("sqlite:{}", folder.path().join("a.db").display()))
            .await;
    }

    #[tokio::test]
    async fn concurrent_updates_are_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        super::assert_no_update_is_lost(&format!(
            "sqlite:{}",
            folder.path().join("a.db").display()
        ))
        .await;
    }
}

mod postgres {
    use stayput_testkit::postgres::PostgresUrl;

    #[tokio::test]
    async fn state_survives_restart_and_replica_change() {
        let database = PostgresUrl::empty();
        super::assert_state_survives(&database.url).await;
    }

    #[tokio::test]
    async fn concurrent_updates_are_not_lost() {
        let database = PostgresUrl::empty();
        super::assert_no_update_is_lost(&database.url).await;
    }
}

mod redis {
    use stayput_testkit::redis::RedisUrl;

    #[tokio::test]
    async fn state_survives_restart_and_replica_change() {
        let database = RedisUrl::empty();
        super::assert_state_survives(&database.url).await;
    }

    #[tokio::test]
    async fn concurrent_updates_are_not_lost() {
        let database = RedisUrl::empty();
        super::assert_no_update_is_lost(&database.url).await;
    }
}

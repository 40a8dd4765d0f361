//! Replicas on one database.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use stayput_testkit::{Balancer, postgres::PostgresUrl, redis::RedisUrl};

use crate::support::{Client, Gateway};

/// Key of the clusters in these tests.
pub(crate) const KEY: &str = "a-key-of-the-cluster-that-is-long-enough";

/// Database of a test.
pub(crate) enum Database {
    Postgres(PostgresUrl),
    Redis(RedisUrl),
}

impl Database {
    pub(crate) async fn postgres() -> Self {
        Self::Postgres(tokio::task::spawn_blocking(PostgresUrl::empty).await.unwrap())
    }

    pub(crate) async fn redis() -> Self {
        Self::Redis(tokio::task::spawn_blocking(RedisUrl::empty).await.unwrap())
    }

    pub(crate) fn url(&self) -> &str {
        match self {
            Self::Postgres(database) => &database.url,
            Self::Redis(database) => &database.url,
        }
    }
}

/// Returns the settings of one replica.
pub(crate) fn settings(store: &str) -> Value {
    json!({
        "store": store, "lease": "3s", "seal": "5".repeat(64),
        "cluster": { "listen": "127.0.0.1:0", "key": KEY },
    })
}

/// Returns a port that is free now, for an address that others have to know before the gateway starts.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Replicas that are used in turn, as by a balancer without stickiness.
pub(crate) struct Replicas {
    pub(crate) all: Vec<Gateway>,
    turn: AtomicUsize,
}

impl Replicas {
    /// Starts three replicas for these servers.
    pub(crate) async fn start(servers: &Value, store: &str) -> Self {
        Self::with(servers, &settings(store)).await
    }

    pub(crate) async fn with(servers: &Value, settings: &Value) -> Self {
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(Gateway::with(servers.clone(), settings.clone()).await);
        }
        Self { all, turn: AtomicUsize::new(0) }
    }

    /// Starts a balancer in front of them.
    pub(crate) async fn balancer(&self) -> Balancer {
        let addresses: Vec<_> = self.all.iter().map(|it| it.url.replace("http://", "")).collect();
        let start =
            move || Balancer::start(&addresses.iter().map(String::as_str).collect::<Vec<_>>());
        tokio::task::spawn_blocking(start).await.unwrap()
    }

    /// Returns the next replica.
    pub(crate) fn next(&self) -> &Gateway {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.all[turn % self.all.len()]
    }

    /// Calls `count` of a client at the next replica.
    pub(crate) async fn count(&self, client: &Client) -> String {
        client.text(self.next(), "count").await
    }

    /// Returns the logs of all replicas.
    pub(crate) fn logs(&self) -> String {
        self.all.iter().map(Gateway::log).collect::<Vec<_>>().join("\n---\n")
    }
}

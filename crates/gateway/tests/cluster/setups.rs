//! Set-ups that cannot work are refused.

use serde_json::{Value, json};

use crate::{
    replicas::{Database, settings},
    support::{Gateway, LONG},
};

/// Starts a gateway that must not start, and returns its output.
async fn refused(settings: &Value) -> String {
    let folder = tempfile::TempDir::new().unwrap();
    let mut settings = settings.clone();
    settings["listen"] = json!("127.0.0.1:0");
    let config = folder.path().join("stayput.json");
    std::fs::write(&config, json!({ "mcpServers": {}, "stayput": settings }).to_string()).unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(["serve", "--config"]).arg(&config).kill_on_drop(true);
    command.env("XDG_DATA_HOME", folder.path().join("data"));
    let log = folder.path().join("log");
    command.stderr(std::fs::File::create(&log).unwrap());
    let ended = tokio::time::timeout(LONG, command.spawn().unwrap().wait()).await;
    let log = std::fs::read_to_string(log).unwrap();
    let status = ended.unwrap_or_else(|_| panic!("it started: {log}")).unwrap();
    assert!(!status.success(), "{log}");
    log
}

async fn check_refusals(database: &Database) {
    let alone = json!({ "store": database.url(), "lease": "2s", "seal": "5".repeat(64) });
    let mut first = Gateway::with(json!({}), alone.clone()).await;
    let log = refused(&alone).await;
    assert!(log.contains("another gateway uses this database"), "{log}");
    assert!(log.contains("`cluster`"), "{log}");
    let mut clustered = settings(database.url());
    clustered["lease"] = json!("2s");
    let log = refused(&clustered).await;
    assert!(log.contains("another gateway uses this database"), "{log}");
    // The database is free as soon as the first gateway is gone, also without a word.
    first.kill();
    let _second = Gateway::with(json!({}), clustered.clone()).await;
    let log = refused(&alone).await;
    assert!(log.contains("another gateway uses this database"), "{log}");
    let mut other = clustered.clone();
    other["cluster"]["key"] = json!("another-key-of-a-cluster-that-is-long-enough");
    let log = refused(&other).await;
    assert!(log.contains("has another key"), "{log}");
    let mut other = clustered.clone();
    other["seal"] = json!("6".repeat(64));
    let log = refused(&other).await;
    assert!(log.contains("sealed with another key"), "{log}");
    // During a rotation each gateway has both keys.
    clustered["seal"] = json!(["6".repeat(64), "5".repeat(64)]);
    let key = clustered["cluster"]["key"].clone();
    clustered["cluster"]["key"] = json!(["another-key-of-a-cluster-that-is-long-enough", key]);
    drop(Gateway::with(json!({}), clustered).await);
}

#[tokio::test]
async fn gateways_that_do_not_fit_are_refused_on_postgres() {
    check_refusals(&Database::postgres().await).await;
}

#[tokio::test]
async fn gateways_that_do_not_fit_are_refused_on_redis() {
    check_refusals(&Database::redis().await).await;
}

#[tokio::test]
async fn cluster_without_a_common_store_or_key_is_refused() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = format!("sqlite:{}", folder.path().join("store.db").display());
    let log = refused(&settings(&file)).await;
    assert!(log.contains("needs a database that all gateways reach"), "{log}");
    let mut unsealed = settings("redis://127.0.0.1:1");
    unsealed.as_object_mut().unwrap().remove("seal");
    let log = refused(&unsealed).await;
    assert!(log.contains("`cluster` needs `seal`"), "{log}");
    let mut short = settings("redis://127.0.0.1:1");
    short["cluster"]["key"] = json!("s3cr3t-short");
    let log = refused(&short).await;
    assert!(log.contains("at least 32 characters") && !log.contains("s3cr3t"), "{log}");
    let mut everywhere = settings("redis://127.0.0.1:1");
    everywhere["cluster"]["listen"] = json!("0.0.0.0:0");
    let log = refused(&everywhere).await;
    assert!(log.contains("\"advertise\" is missing"), "{log}");
}

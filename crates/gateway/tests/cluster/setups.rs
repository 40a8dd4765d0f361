//! Set-ups that cannot work are refused.

use serde_json::{Value, json};
use stayput_testkit::mcp::send;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    replicas::{Database, Replicas, settings},
    support::{Gateway, LONG, gone, mark, stdio, until},
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

/// Both gateways name the servers in which they differ.
#[tokio::test]
async fn other_servers_are_named_in_both_logs() {
    let (mark, database) = (mark("other-servers"), Database::redis().await);
    let server = |more: &[&str]| {
        let mut server = stdio(&mark, more);
        // By default it is the folder of the configuration.
        server["cwd"] = json!("/");
        server
    };
    let servers = |more: &str| json!({ "same": server(&[]), "differs": server(&["--tool", more]), more: server(&[]) });
    let one = Gateway::with(servers("one"), settings(database.url())).await;
    let two = Gateway::with(servers("two"), settings(database.url())).await;
    let says = |gateway: &Gateway| gateway.log().contains("(`differs`, `one`, `two`)");
    until("warning of the second gateway", || says(&two)).await;
    until("warning of the first gateway", || says(&one)).await;
}

/// Returns the page `/metrics`.
async fn metrics(gateway: &Gateway) -> String {
    let url = format!("{}/metrics", gateway.url);
    let page = send(http::Method::GET, &url, &[], "").await.unwrap().bytes().await.unwrap();
    String::from_utf8(page.to_vec()).unwrap()
}

/// Returns the process of `stayput status --json`.
fn status(gateway: &Gateway) -> Value {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stayput"));
    command.args(["status", "--json", "--config"]).arg(gateway.config());
    command.env("XDG_DATA_HOME", gateway.folder.path().join("data"));
    let output = command.output().unwrap();
    let whole: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    whole["process"].clone()
}

/// An advertised URL that does not lead to its gateway is told to the operators of both sides.
#[tokio::test]
async fn address_that_peers_cannot_reach_is_told_on_both_sides() {
    let database = Database::redis().await;
    let one = Gateway::with(json!({}), settings(database.url())).await;
    let mut wrong = settings(database.url());
    wrong["cluster"]["advertise"] = json!("http://127.0.0.1:1");
    let two = Gateway::with(json!({}), wrong).await;
    until("warning of the gateway that cannot connect", || {
        one.log().contains("the gateway at http://127.0.0.1:1 cannot be reached from here")
    })
    .await;
    until("warning of the gateway that is not reached", || {
        two.log().contains("cannot reach this one under http://127.0.0.1:1")
    })
    .await;
    let (seen, own) = (status(&one), status(&two));
    assert!(seen["replicas"][0]["unreached"].is_string(), "{seen}");
    assert!(own["replicas"][0]["unreached_by"].is_string(), "{own}");
    assert_eq!(own["replicas"][0]["holder"], seen["holder"]);
    let metrics = metrics(&one).await;
    for line in ["stayput_replicas 2", "stayput_replicas_unreached 1", "stayput_lease_held 1"] {
        assert!(metrics.lines().any(|it| it == line), "{line} is not in {metrics}");
    }
}

/// Relays to `to`, and moves the time in the answers by some thousands of years.
async fn relay_with_another_time(to: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::runtime::Handle::current().spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let Ok(server) = TcpStream::connect(&to).await else { continue };
            tokio::runtime::Handle::current().spawn(async move {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let requests = tokio::io::copy(&mut from_client, &mut to_server);
                let answers = async {
                    let mut bytes = [0; 1 << 14];
                    while let Ok(size @ 1..) = from_server.read(&mut bytes).await {
                        let text = String::from_utf8_lossy(&bytes[..size]);
                        let text = text.replace("{\"time\":1", "{\"time\":9");
                        if to_client.write_all(text.as_bytes()).await.is_err() {
                            break;
                        }
                    }
                };
                let _ = tokio::join!(requests, answers);
            });
        }
    });
    address
}

/// A clock that differs is told.
#[tokio::test]
async fn clock_that_differs_is_told() {
    let database = Database::redis().await;
    let one = Gateway::with(json!({}), settings(database.url())).await;
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let internal = format!("127.0.0.1:{port}");
    let relay = relay_with_another_time(internal.clone()).await;
    let mut late = settings(database.url());
    late["cluster"]["listen"] = json!(internal);
    late["cluster"]["advertise"] = json!(format!("http://{relay}"));
    let two = Gateway::with(json!({}), late).await;
    until("warning", || one.log().contains("the clock of the gateway at")).await;
    assert!(!two.log().contains("the clock of"), "{}", two.log());
}

/// `/metrics` counts what happens between replicas.
#[tokio::test]
async fn metrics_count_forwarded_requests_and_sessions_taken_over() {
    let (mark, database) = (mark("cluster-metrics"), Database::redis().await);
    let servers = json!({ "local": stdio(&mark, &[]) });
    let mut replicas = Replicas::start(&servers, database.url()).await;
    let client = replicas.all[0].client("local").await;
    assert_eq!(client.text(&replicas.all[1], "count").await, "1");
    let value = async |gateway: &Gateway, name: &str| -> u64 {
        let page = metrics(gateway).await;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{name} is not in {page}"))
    };
    let answered = "stayput_forwarded_requests_total{outcome=\"answered\"}";
    assert_eq!(value(&replicas.all[0], answered).await, 0);
    assert_eq!(value(&replicas.all[1], answered).await, 1);
    let claimed = "stayput_sessions_claimed_total";
    assert_eq!(value(&replicas.all[1], claimed).await, 0);
    replicas.all[0].kill();
    client.call(&replicas.all[1], "count", json!({})).await;
    assert_eq!(value(&replicas.all[1], claimed).await, 1, "{}", replicas.logs());
    drop(replicas);
    gone(&mark).await;
}

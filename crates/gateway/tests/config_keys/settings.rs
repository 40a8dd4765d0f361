//! Address, certificates, store, expiry and records of the gateway.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use stayput_testkit::{mcp::TestServer, redis::Redis};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    kit::{Peer, Stage, greet_as, hello, raw},
    support::{Gateway, LONG, until},
};

/// Observer: the address that the gateway listens on, without the port.
async fn listener(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    gateway.url.rsplit_once(':').unwrap().0.to_owned()
}

fn openssl(arguments: &[&str]) {
    let made = Command::new("openssl").args(arguments).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// Creates a private key and a certificate with this name for it. Returns their paths.
fn certificate(folder: &Path, key: &str, name: &str) -> [PathBuf; 2] {
    let (key, cert) = (folder.join(key), folder.join(format!("{name}.pem")));
    let path = key.to_str().unwrap();
    if !key.exists() {
        openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path]);
    }
    let subject = format!("/CN={name}");
    let to = cert.to_str().unwrap();
    openssl(&["req", "-x509", "-days", "2", "-key", path, "-subj", &subject, "-out", to]);
    [key, cert]
}

/// Observer: the name in the certificate of the gateway, or `no start`.
async fn name_in_the_certificate(stage: Stage) -> String {
    let Ok(gateway) = stage.start().await else { return "no start".to_owned() };
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", gateway.url.trim_start_matches("https://")]);
    let shown = command.stdin(Stdio::null()).output().unwrap().stdout;
    let shown = String::from_utf8_lossy(&shown).into_owned();
    let line = shown.lines().find_map(|line| line.strip_prefix("subject=CN = "));
    line.unwrap_or("none").to_owned()
}

/// Settings of a gateway in a cluster on `redis`.
fn clustered(redis: &Redis, cluster: &Value) -> Value {
    json!({ "store": redis.url(), "lease": "2s", "seal": "5".repeat(64), "cluster": cluster })
}

/// Observer: the end of the lease in the store, in minutes from now.
async fn lease(stage: Stage, redis: &Redis) -> String {
    redis_cli(redis, &["flushall"]);
    let gateway = stage.gateway().await;
    let key = redis_cli(redis, &["--raw", "keys", "*ends"]);
    let rows = redis_cli(redis, &["--raw", "zrange", key.trim(), "0", "-1", "withscores"]);
    let end: f64 = rows.lines().nth(1).unwrap_or_else(|| panic!("{key}{rows}")).parse().unwrap();
    let now = stayput_core::Clock::now(&stayput_core::SystemClock).as_millis();
    drop(gateway);
    if Duration::from_secs_f64(end / 1_000.0).saturating_sub(Duration::from_millis(now))
        > Duration::from_secs(60)
    {
        "long".to_owned()
    } else {
        "short".to_owned()
    }
}

fn redis_cli(redis: &Redis, arguments: &[&str]) -> String {
    let output = redis.cli().args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Observer: status of `initialize` under another host name.
async fn other_host(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let body = hello().to_string();
    let head = format!(
        "POST /mcp/test HTTP/1.1\r\nhost: mcp.example.com\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    raw(&gateway, head.as_bytes(), LONG).await
}

/// Observer: a call after the end of the session's process, if the session says that it ends soon. Otherwise a call at
/// once.
async fn count_after_expiry(stage: Stage) -> String {
    let gateway = stage.gateway().await;
    let client = Peer::default().connect(&gateway).await.unwrap();
    let pid = client.call(&gateway, "pid", json!({})).await;
    assert_eq!(client.call(&gateway, "count", json!({})).await, "1");
    let params = json!({ "name": "session_info", "arguments": {} });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let info = client.post(&gateway, "test", &body).await.message().await;
    let info = &info["result"]["structuredContent"];
    let seconds = info["expires_in_seconds"].as_u64().unwrap_or_else(|| panic!("{info}"));
    if seconds < 60 {
        let process = Path::new("/proc").join(&pid);
        until("end of the process", || !process.exists()).await;
    }
    client.call(&gateway, "count", json!({})).await
}

/// Tools that describe a session.
fn session_tools() -> Value {
    json!({ "mcpServers": { "test": { "stayput": { "handles": "always" } } } })
}

/// Observer: a call after a restart for which the generated key of the gateway is gone.
async fn count_without_the_generated_key(mut stage: Stage) -> String {
    let store = stage.folder.path().join("store.db");
    stage.file["stayput"]["store"] = json!(format!("sqlite:{}", store.display()));
    let mut gateway = stage.gateway().await;
    let client = Peer::default().connect(&gateway).await.unwrap();
    assert_eq!(client.call(&gateway, "count", json!({})).await, "1");
    assert!(gateway.stop().success());
    let _ = std::fs::remove_file(gateway.folder.path().join("store.db.d/key"));
    gateway.restart().await;
    client.call(&gateway, "count", json!({})).await
}

/// Observer: whether a file has a line about a call, and whether the line has its argument.
async fn audited(stage: Stage, file: &Path) -> String {
    let _ = std::fs::remove_file(file);
    let mut gateway = stage.gateway().await;
    let client = Peer::default().connect(&gateway).await.unwrap();
    client.call(&gateway, "echo", json!({ "word": "argument-of-the-call" })).await;
    assert!(gateway.stop().success());
    match std::fs::read_to_string(file) {
        Err(_) => "no file".to_owned(),
        Ok(text) if text.contains("argument-of-the-call") => "argument".to_owned(),
        Ok(text) if text.contains("echo") => "line".to_owned(),
        Ok(text) => text,
    }
}

/// Collector of spans, which records the heads of the requests.
async fn collector() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let heads = Arc::<Mutex<String>>::default();
    let into = heads.clone();
    tokio::runtime::Handle::current().spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                match socket.read_u8().await {
                    Ok(byte) => head.push(char::from(byte)),
                    Err(_) => break,
                }
            }
            into.lock().unwrap().push_str(&head);
            let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
            let _ = socket.write_all(answer).await;
        }
    });
    (url, heads)
}

/// Observer: what the collector got of a call: nothing, a span, or one with the credentials.
async fn spans(stage: Stage, heads: &Mutex<String>) -> String {
    heads.lock().unwrap().clear();
    let exports = stage.file["stayput"]["otlp"].is_object();
    let mut gateway = stage.gateway().await;
    let client = Peer::default().connect(&gateway).await.unwrap();
    client.call(&gateway, "count", json!({})).await;
    if exports {
        until("span", || !heads.lock().unwrap().is_empty()).await;
    }
    assert!(gateway.stop().success());
    let heads = heads.lock().unwrap();
    match (heads.contains("POST /v1/traces"), heads.contains("x-key: s3cr3t-key")) {
        (false, _) => "nothing",
        (true, false) => "span",
        (true, true) => "credentials",
    }
    .to_owned()
}

keys! {
    "stayput.listen" listen_is_the_address |key| {
        let key = key.set(json!("127.0.0.2:0")).instead_of(json!("127.0.0.1:0"));
        key.shows(listener, ["http://127.0.0.2", "http://127.0.0.1"]).await;
    }
    "stayput.tls.cert" cert_is_shown_to_clients |key| {
        let folder = tempfile::tempdir().unwrap();
        let [private, one] = certificate(folder.path(), "key", "one");
        let [_, two] = certificate(folder.path(), "key", "two");
        let key = key.with(&json!({ "tls": { "key": private } }));
        let key = key.set(json!(one)).instead_of(json!(two));
        key.shows(name_in_the_certificate, ["one", "two"]).await;
    }
    "stayput.tls.key" key_is_that_of_the_certificate |key| {
        let folder = tempfile::tempdir().unwrap();
        let [private, one] = certificate(folder.path(), "key", "one");
        let [other, _] = certificate(folder.path(), "other", "two");
        let key = key.with(&json!({ "tls": { "cert": one } }));
        let key = key.set(json!(private)).instead_of(json!(other));
        key.shows(name_in_the_certificate, ["one", "no start"]).await;
    }
    "stayput.store" store_is_where_sessions_are |key| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chosen.db");
        let observe = async |stage: Stage| {
            let _ = std::fs::remove_file(&path);
            let gateway = stage.gateway().await;
            Peer::default().connect(&gateway).await.unwrap();
            path.is_file().to_string()
        };
        let url = json!(format!("sqlite:{}", path.display()));
        key.set(url).shows(observe, ["true", "false"]).await;
    }
    "stayput.lease" lease_is_the_time_in_the_store |key| {
        let redis = tokio::task::spawn_blocking(Redis::start).await.unwrap();
        let key = key.with(&json!({ "store": redis.url() }));
        let observe = async |stage| lease(stage, &redis).await;
        key.set(json!("10m")).shows(observe, ["long", "short"]).await;
    }
    "stayput.allowed_origins" allowed_origin_is_served |key| {
        let page = "https://app.example.com";
        let observe = async |stage| greet_as(stage, &Peer::with("origin", page)).await;
        key.set(json!([page])).shows(observe, ["200", "403"]).await;
    }
    "stayput.allowed_hosts" allowed_host_is_served |key| {
        key.set(json!(["mcp.example.com"])).shows(other_host, ["200", "403"]).await;
    }
    "stayput.expiry.idle" idle_session_expires |key| {
        let key = key.on(&session_tools()).set(json!("3s"));
        key.shows(count_after_expiry, ["error", "2"]).await;
    }
    "stayput.expiry.absolute" old_session_expires |key| {
        let key = key.on(&session_tools()).set(json!("3s"));
        key.shows(count_after_expiry, ["error", "2"]).await;
    }
    "stayput.seal" seal_replaces_the_generated_key |key| {
        let server = TestServer::http(&["--era", "legacy"]).await;
        let key = key.url(&server).set(json!("5ea1".repeat(16)));
        key.shows(count_without_the_generated_key, ["2", "error"]).await;
    }
    "stayput.data" data_is_where_keys_are |key| {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("chosen");
        let observe = async |stage: Stage| {
            let _gateway = stage.gateway().await;
            let is_there = std::fs::remove_dir_all(&data).is_ok();
            if is_there { "there" } else { "elsewhere" }.to_owned()
        };
        key.set(json!(data)).shows(observe, ["there", "elsewhere"]).await;
    }
    "stayput.folders" folders_is_where_private_folders_are |key| {
        let folder = tempfile::tempdir().unwrap();
        let chosen = folder.path().join("chosen");
        let env = json!({ "WORK": "${session.dir}" });
        let key = key.on(&json!({ "mcpServers": { "test": { "env": env } } }));
        let observe = async |stage: Stage| {
            let gateway = stage.gateway().await;
            let client = gateway.client("test").await;
            assert_eq!(client.text(&gateway, "count").await, "1");
            let is_there = std::fs::remove_dir_all(&chosen).is_ok();
            if is_there { "there" } else { "elsewhere" }.to_owned()
        };
        key.set(json!(chosen)).shows(observe, ["there", "elsewhere"]).await;
    }
    "stayput.cluster.listen" other_gateways_reach_the_address |key| {
        let redis = tokio::task::spawn_blocking(Redis::start).await.unwrap();
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let key = key.with(&clustered(&redis, &json!({ "key": "k".repeat(32) })));
        let key = key.set(json!(address.to_string())).instead_of(json!("127.0.0.1:0"));
        let observe = async |stage: Stage| {
            let _gateway = stage.gateway().await;
            let reached = TcpStream::connect(address).await.is_ok();
            if reached { "reached" } else { "refused" }.to_owned()
        };
        key.shows(observe, ["reached", "refused"]).await;
    }
    "stayput.cluster.advertise" other_gateways_learn_the_url |key| {
        let redis = tokio::task::spawn_blocking(Redis::start).await.unwrap();
        let cluster = json!({ "listen": "127.0.0.1:0", "key": "k".repeat(32) });
        let key = key.with(&clustered(&redis, &cluster)).set(json!("http://localhost:1"));
        let observe = async |stage: Stage| {
            redis_cli(&redis, &["flushall"]);
            let _gateway = stage.gateway().await;
            let rows = redis_cli(&redis, &["hvals", "stayput:{leases}:holders"]);
            let is_known = rows.contains("http://localhost:1");
            if is_known { "url" } else { "address" }.to_owned()
        };
        key.shows(observe, ["url", "address"]).await;
    }
    "stayput.cluster.key" gateways_share_a_key |key| {
        let redis = tokio::task::spawn_blocking(Redis::start).await.unwrap();
        let mut settings = clustered(&redis, &json!({ "listen": "127.0.0.1:0" }));
        let key = key.with(&settings);
        settings["cluster"]["key"] = json!("k".repeat(32));
        let _first = Gateway::with(json!({}), settings).await;
        let key = key.set(json!("k".repeat(32))).instead_of(json!("l".repeat(32)));
        let observe = async |stage: Stage| match stage.start().await {
            Ok(_) => "start".to_owned(),
            Err(_) => "no start".to_owned(),
        };
        key.shows(observe, ["start", "no start"]).await;
    }
    "stayput.audit.to" audit_goes_to_a_file |key| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.jsonl");
        let observe = async |stage| audited(stage, &file).await;
        key.set(json!(file)).shows(observe, ["line", "no file"]).await;
    }
    "stayput.audit.arguments" audit_has_arguments |key| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.jsonl");
        let key = key.with(&json!({ "audit": { "to": file } }));
        let observe = async |stage| audited(stage, &file).await;
        key.set(json!(true)).shows(observe, ["argument", "line"]).await;
    }
    "stayput.otlp.url" spans_go_to_a_collector |key| {
        let (url, heads) = collector().await;
        let observe = async |stage| spans(stage, &heads).await;
        key.set(json!(url)).shows(observe, ["span", "nothing"]).await;
    }
    "stayput.otlp.headers" headers_go_to_a_collector |key| {
        let (url, heads) = collector().await;
        let key = key.with(&json!({ "otlp": { "url": url } }));
        let observe = async |stage| spans(stage, &heads).await;
        key.set(json!({ "X-Key": "s3cr3t-key" })).shows(observe, ["credentials", "span"]).await;
    }
}

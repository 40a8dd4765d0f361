//! Errors of opening: address, credentials, schema, cluster, TLS.

use std::{net::TcpListener, path::Path, time::Duration};

use stayput_stores::StoreOpenError;
use stayput_testkit::redis::Redis;

use crate::kit::{answer, open, open_error, record_with_key, run_cli};

#[tokio::test]
async fn unreachable_server_is_explained() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://ann:secret@{}", silent.local_addr().unwrap());
    let text = open_error(&url).await;
    assert!(text.starts_with("the redis store cannot be opened: "), "{text}");
    assert!(text.contains("in time"), "{text}");
    drop(silent);
    assert!(open_error(&url).await.contains("refused"));
    let text = open_error("redis://u:secret@127.0.0.1/secret").await;
    assert!(text.contains("database number"), "{text}");

    let server = Redis::start();
    run_cli(&mut server.cli(), "config set requirepass right");
    let url = |password| server.url().replace("://", &format!("://:{password}@"));
    let text = open_error(&url("secret")).await;
    assert!(text.contains("WRONGPASS"), "{text}");
    open(&url("right")).await;
}

#[tokio::test]
async fn unknown_schema_is_refused_and_unchanged() {
    let server = Redis::start();
    open(&server.url()).await;
    assert_eq!(run_cli(&mut server.cli(), "get stayput:schema"), "3");
    run_cli(&mut server.cli(), "set stayput:schema 4");
    let error = stayput_stores::open(&server.url()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the redis store has schema 4, and this program knows schemas up to 3; \
         run the newer version of it"
    );
    assert_eq!(run_cli(&mut server.cli(), "get stayput:schema"), "4");
    run_cli(&mut server.cli(), "set stayput:schema 2");
    let error = stayput_stores::open(&server.url()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the redis store has schema 2, and this program needs at least schema 3; \
         name another store, or remove this one, which loses its sessions"
    );
    assert_eq!(run_cli(&mut server.cli(), "get stayput:schema"), "2");
    open(&format!("{}?prefix=other", server.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_of_several_nodes_is_refused() {
    let (one, two) = (Redis::cluster(), Redis::cluster());
    run_cli(&mut one.cli(), "cluster delslotsrange 8192 16383");
    run_cli(&mut two.cli(), "cluster delslotsrange 0 8191");
    let other = two.url().replace("redis://", "").replace(':', " ");
    run_cli(&mut one.cli(), &format!("cluster meet {other}"));
    let formed = async {
        while !run_cli(&mut one.cli(), "cluster info").contains("cluster_size:2") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    answer(formed).await;
    let text = open_error(&one.url()).await;
    assert!(text.contains("cluster of 2 nodes"), "{text}");
}

fn with_authority(url: &str, authority: &Path) -> String {
    format!("{url}/?sslrootcert={}", authority.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unverified_certificate_is_refused() {
    let (server, other) = (Redis::encrypted(), Redis::encrypted());
    let url = server.url();
    let store = open(&with_authority(&url, &server.authority())).await.store;
    let record = record_with_key("k");
    store.insert(&record, None).await.unwrap();
    assert_eq!(store.load(record.id).await.unwrap(), Some(record));

    let unverified = [
        url.clone(),
        with_authority(&url, &other.authority()),
        // The driver's own switch has no effect.
        format!("{url}/#insecure"),
        format!("{}#insecure", with_authority(&url, &other.authority())),
        // The certificate is for another name.
        with_authority(&url.replace("localhost", "127.0.0.1"), &server.authority()),
        // The server requires encryption.
        url.replace("rediss", "redis"),
    ];
    for url in unverified {
        open_error(&url).await;
    }
}

#[tokio::test]
async fn unusable_authority_file_is_refused_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    let refused = async || {
        let error = stayput_stores::open(&with_authority("rediss://127.0.0.1:1", &authority)).await;
        let error = error.unwrap_err();
        assert!(matches!(error, StoreOpenError::File { .. }), "{error:?}");
        error.to_string()
    };
    let text = refused().await;
    assert!(text.contains("authority.pem cannot be used"), "{text}");
    std::fs::write(&authority, "no certificate").unwrap();
    let text = refused().await;
    assert!(text.ends_with("no certificate in PEM form"), "{text}");
}

//! Who is let in, and what is said to who is not.

use std::{net::TcpListener, path::Path, time::Duration};

use stayput_stores::OpenError;
use stayput_testkit::redis::Redis;

use crate::kit::{answer, named, open, refusal, says};

#[tokio::test]
async fn what_cannot_be_reached_is_told_in_a_sentence() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://ann:secret@{}", silent.local_addr().unwrap());
    let said = refusal(&url).await;
    assert!(said.starts_with("the redis store cannot be opened: "), "{said}");
    assert!(said.contains("in time"), "{said}");
    drop(silent);
    assert!(refusal(&url).await.contains("refused"));
    let said = refusal("redis://u:secret@127.0.0.1/secret").await;
    assert!(said.contains("database number"), "{said}");

    let server = Redis::start();
    says(&mut server.cli(), "config set requirepass right");
    let url = |password| server.url().replace("://", &format!("://:{password}@"));
    let said = refusal(&url("secret")).await;
    assert!(said.contains("WRONGPASS"), "{said}");
    open(&url("right")).await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_as_it_is() {
    let server = Redis::start();
    open(&server.url()).await;
    assert_eq!(says(&mut server.cli(), "get stayput:schema"), "2");
    says(&mut server.cli(), "set stayput:schema 3");
    let error = stayput_stores::open(&server.url()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the redis store has schema 3, and this program knows schemas up to 2; \
         run the newer version of it"
    );
    assert_eq!(says(&mut server.cli(), "get stayput:schema"), "3");
    says(&mut server.cli(), "set stayput:schema 1");
    open(&server.url()).await;
    assert_eq!(says(&mut server.cli(), "get stayput:schema"), "2");
    open(&format!("{}?prefix=other", server.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_several_nodes_is_refused() {
    let (one, two) = (Redis::cluster(), Redis::cluster());
    says(&mut one.cli(), "cluster delslotsrange 8192 16383");
    says(&mut two.cli(), "cluster delslotsrange 0 8191");
    let other = two.url().replace("redis://", "").replace(':', " ");
    says(&mut one.cli(), &format!("cluster meet {other}"));
    let formed = async {
        while !says(&mut one.cli(), "cluster info").contains("cluster_size:2") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    answer(formed).await;
    let said = refusal(&one.url()).await;
    assert!(said.contains("cluster of 2 nodes"), "{said}");
}

fn trusting(url: &str, authority: &Path) -> String {
    format!("{url}/?sslrootcert={}", authority.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_server_must_be_vouched_for() {
    let (server, other) = (Redis::encrypted(), Redis::encrypted());
    let url = server.url();
    let store = open(&trusting(&url, &server.authority())).await.store;
    let record = named("k");
    store.insert(&record, None).await.unwrap();
    assert_eq!(store.load(record.id).await.unwrap(), Some(record));

    let strangers = [
        url.clone(),
        trusting(&url, &other.authority()),
        // There is no way around it, not even the driver's own.
        format!("{url}/#insecure"),
        format!("{}#insecure", trusting(&url, &other.authority())),
        // The certificate is for another name.
        trusting(&url.replace("localhost", "127.0.0.1"), &server.authority()),
        // It does not speak without encryption.
        url.replace("rediss", "redis"),
    ];
    for url in strangers {
        refusal(&url).await;
    }
}

#[tokio::test]
async fn an_authority_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    let refused = async || {
        let error = stayput_stores::open(&trusting("rediss://127.0.0.1:1", &authority)).await;
        let error = error.unwrap_err();
        assert!(matches!(error, OpenError::File { .. }), "{error:?}");
        error.to_string()
    };
    let said = refused().await;
    assert!(said.contains("authority.pem cannot be used"), "{said}");
    std::fs::write(&authority, "no certificate").unwrap();
    let said = refused().await;
    assert!(said.ends_with("no certificate in PEM form"), "{said}");
}

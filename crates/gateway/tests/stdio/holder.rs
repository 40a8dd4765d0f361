//! Windows whose sessions are held by a running `stayput serve`.

use serde_json::{Value, json};
use stayput_testkit::program;

use crate::{
    kit::{Home, Window, servers},
    support::{Gateway, gone, mark, stdio},
};

/// Starts a window on the store of a gateway.
fn window(home: &Home, gateway: &Gateway, arguments: &[&str]) -> Window {
    let store = format!("sqlite:{}", gateway.folder.path().join("store.db").display());
    let mut all = vec!["--store", &store];
    all.extend(arguments);
    home.window(&all)
}

/// Each store has one holder: a window connects to the running gateway, and uses its servers or brings its own.
#[tokio::test]
async fn window_connects_to_the_running_gateway() {
    let (home, own, its) = (Home::new(), mark("serve-own"), mark("serve-its"));
    let gateway = Gateway::start(json!({ "test": stdio(&own, &[]) })).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    let mut one = window(&home, &gateway, &["--server", "test", "--session", "k"]);
    one.greet().await;
    assert_eq!((one.count().await, one.count().await), ("1".to_owned(), "2".to_owned()));
    assert_eq!(servers(&own), 2);
    // The same name for another server: each window gets its own.
    let server = program("stayput-testserver");
    let mut arguments = vec!["--server", "test", "--", server.to_str().unwrap(), "stdio"];
    arguments.extend(["--era", "legacy", "--mark", &its, "--tool", "extra"]);
    let mut two = window(&home, &gateway, &arguments);
    two.greet().await;
    assert_eq!(
        (two.text("extra", json!({})).await, two.count().await),
        ("extra".into(), "1".into())
    );
    assert_eq!((servers(&own), servers(&its)), (2, 1));
    // Invariant 1: sessions of this user are not accessible over HTTP.
    let named = client.call(&gateway, "count", json!({}));
    assert_eq!(named.await["result"]["content"][0]["text"], "2");
    let refused = window(&home, &gateway, &["--server", "none"]).wait().await;
    assert_eq!(refused.code(), Some(1));
    assert!(two.close().await.success() && one.close().await.success());
    gone(&its).await;
    let mut again = window(&home, &gateway, &["--server", "test", "--session", "k"]);
    again.greet().await;
    assert_eq!(again.count().await, "3");
    assert!(again.close().await.success());
    assert!(home.daemons().is_empty(), "nobody else was needed");
}

/// After a graceful or forced restart of the gateway its windows reconnect.
#[tokio::test]
async fn windows_reconnect_to_a_restarted_gateway() {
    let (home, mark) = (Home::new(), mark("serve-back"));
    let mut gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let mut window = window(&home, &gateway, &[]);
    window.greet().await;
    for gently in [true, false] {
        assert_eq!(window.count_after_a_loss().await, "1");
        match gently {
            true => assert!(gateway.stop().success()),
            false => gateway.kill(),
        }
        gateway.restart().await;
        let lost: Value = window.call("count", json!({})).await;
        assert_eq!(lost["result"]["_meta"]["dev.stayput/state"]["state"], "lost", "{lost}");
    }
    assert!(home.daemons().is_empty(), "nobody came in between");
    assert!(window.close().await.success());
    gone(&mark).await;
}

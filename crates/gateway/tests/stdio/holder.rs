//! Windows whose sessions are held by a running `stayput serve`.

use serde_json::{Value, json};
use stayput_testkit::program;

use crate::{
    kit::{Home, Window, servers},
    world::{Gateway, gone, mark, stdio},
};

/// A window on the store of a gateway.
fn window(home: &Home, gateway: &Gateway, arguments: &[&str]) -> Window {
    let store = format!("sqlite:{}", gateway.folder.path().join("store.db").display());
    let mut all = vec!["--store", &store];
    all.extend(arguments);
    home.window(&all)
}

/// One holder for each store: a window comes to the gateway, with the servers of that or with its own.
#[tokio::test]
async fn a_window_comes_to_the_gateway_that_runs() {
    let (home, own, its) = (Home::new(), mark("serve-own"), mark("serve-its"));
    let gateway = Gateway::start(json!({ "test": stdio(&own, &[]) })).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    let mut one = window(&home, &gateway, &["--server", "test", "--session", "k"]);
    one.greet().await;
    assert_eq!((one.count().await, one.count().await), ("1".to_owned(), "2".to_owned()));
    assert_eq!(servers(&own), 2);
    // The same name, but another server: each is what its window says.
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
    // Invariant 1: what is of this user is of nobody who comes over HTTP.
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

/// A gateway that is started again, gently or not, has its windows back.
#[tokio::test]
async fn windows_wait_for_a_gateway_that_comes_back() {
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

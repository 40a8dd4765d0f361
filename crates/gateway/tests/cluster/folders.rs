//! Private folders of sessions that move between replicas.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stayput_testkit::program;
use tempfile::TempDir;

use crate::{
    replicas::{Database, Replicas, settings},
    support::{Gateway, gone, mark, until},
};

/// Server that writes the messages of each session into its private folder.
fn servers(mark: &str) -> Value {
    let args = ["stdio", "--era", "legacy", "--mark", mark, "--log", "${session.dir}/log"];
    json!({ "local": { "command": program("stayput-testserver"), "args": args } })
}

/// Returns the files of this name below a folder.
fn files(folder: &Path, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let found = entries.flat_map(|entry| match entry.path() {
        path if path.is_dir() => files(&path, name),
        path if path.ends_with(name) => vec![path],
        _ => Vec::new(),
    });
    found.collect()
}

/// Counts at the first replica, kills it, and returns the number of the calls that the folder of the session has after
/// the next ones. The loss of the process is reported either way.
async fn calls_in_the_folder(settings: &Value, mark: &str) -> (usize, Replicas) {
    let mut replicas = Replicas::with(&servers(mark), settings).await;
    let client = replicas.all[0].client("local").await;
    for expected in ["1", "2"] {
        assert_eq!(replicas.count(&client).await, expected, "{}", replicas.logs());
    }
    replicas.all[0].kill();
    let told = client.call(&replicas.all[1], "count", json!({})).await;
    assert!(told.to_string().contains("holder died"), "{told}");
    assert_eq!(client.text(&replicas.all[1], "count").await, "1");
    let of_session = match settings["folders"].as_str() {
        Some(folder) => files(Path::new(folder), "log"),
        None => files(replicas.all[1].folder.path(), "log"),
    };
    let [log] = &*of_session else { panic!("{of_session:?}") };
    let calls = std::fs::read_to_string(log).unwrap().matches("tools/call").count();
    (calls, replicas)
}

/// A session finds its files at another replica if both see the folder.
#[tokio::test]
async fn session_keeps_its_files_with_a_common_folder() {
    let (mark, database) = (mark("common-folder"), Database::redis().await);
    let folder = TempDir::new().unwrap();
    let mut settings = settings(database.url());
    settings["folders"] = json!(folder.path().join("common"));
    let (calls, replicas) = calls_in_the_folder(&settings, &mark).await;
    assert_eq!(calls, 3, "{}", replicas.logs());
    assert!(!replicas.logs().contains("private folders"), "{}", replicas.logs());
    drop(replicas);
    gone(&mark).await;
}

/// Without a common folder each replica has its own, and the start warns.
#[tokio::test]
async fn session_without_a_common_folder_begins_with_an_empty_one() {
    let (mark, database) = (mark("own-folders"), Database::redis().await);
    let (calls, replicas) = calls_in_the_folder(&settings(database.url()), &mark).await;
    assert_eq!(calls, 1, "{}", replicas.logs());
    let log = replicas.all[1].log();
    assert!(
        log.contains("the private folders of `local` are on the disk of this gateway"),
        "{log}"
    );
    drop(replicas);
    gone(&mark).await;
}

/// Gateways that are to share a folder, and do not see the same one, say so.
#[tokio::test]
async fn folder_that_a_peer_does_not_see_is_told() {
    let (database, folder) = (Database::redis().await, TempDir::new().unwrap());
    let with = |name: &str| {
        let mut settings = settings(database.url());
        settings["folders"] = json!(folder.path().join(name));
        settings
    };
    let one = Gateway::with(json!({}), with("a")).await;
    let same = Gateway::with(json!({}), with("a")).await;
    let says = |gateway: &Gateway| gateway.log().contains("does not see the private folders");
    let other = Gateway::with(json!({}), with("b")).await;
    until("warning of the new gateway", || says(&other)).await;
    until("warning of the first gateways", || says(&one) && says(&same)).await;
    assert_eq!(one.log().matches("does not see the private folders").count(), 1, "{}", one.log());
}

//! `server-memory`: a separate process does not imply separate state.

use serde_json::{Value, json};
use stayput_testkit::peers;
use stayput_upstream::{EraChoice, Isolation, LinkOwner, Links, Options, Server};

use crate::{
    kit::{Token, Way, kept, open, tool},
    support::{close, place, place_of, until},
};

async fn remembers(links: &Links, server: &Server, place: &LinkOwner, name: &str) {
    let link = open(links, server, place).await;
    let entity = json!({ "name": name, "entityType": "person", "observations": ["likes tea"] });
    tool(&link, "create_entities", &json!({ "entities": [entity] })).await;
}

/// Returns the names that a session knows.
async fn known(links: &Links, server: &Server, place: &LinkOwner) -> Vec<String> {
    let link = open(links, server, place).await;
    let graph: Value = serde_json::from_str(&tool(&link, "read_graph", &json!({})).await).unwrap();
    let names = graph["entities"].as_array().unwrap().iter();
    let mut names: Vec<_> = names.map(|it| it["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Returns the memory files of the processes with this token.
fn files(token: &Token) -> Vec<String> {
    let environments = token.tree().into_iter().map(|pid| {
        let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let name = "MEMORY_FILE_PATH=";
    let found = environments.filter_map(|all| {
        all.split('\0').find_map(|one| one.strip_prefix(name)).map(str::to_owned)
    });
    found.collect()
}

/// Design §4.5: with the recipe each session has its own memory, which ends with it.
#[tokio::test]
async fn sessions_with_separate_folders_are_isolated() {
    if peers::are_left_out() {
        return;
    }
    let (links, token) = (Way::Local.links(), Token::new());
    let stdio = token.stdio(&peers::memory(), &[]);
    let stdio = stdio.env("MEMORY_FILE_PATH", "${session.dir}/memory.jsonl");
    let server = Server::new("memory", stdio).unwrap();
    let (ann, ben) = (place(), place());
    remembers(&links, &server, &ann, "Ann").await;
    remembers(&links, &server, &ben, "Ben").await;
    assert_eq!(known(&links, &server, &ann).await, ["Ann"]);
    assert_eq!(known(&links, &server, &ben).await, ["Ben"]);

    let files = files(&token);
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(files.iter().all(|file| std::path::Path::new(file).is_file()), "{files:?}");
    for place in [ann, ben] {
        assert!(links.end(place.session).await.is_empty());
    }
    until("no process of it", || token.tree().is_empty()).await;
    for file in files {
        assert!(!std::path::Path::new(&file).parent().unwrap().exists(), "{file}");
    }
    close(&links).await;
}

/// The reason for the recipe: separate processes with one memory file see each other's state. Without the variable
/// that file is next to the program, which a test must not write to.
#[tokio::test]
async fn sessions_with_one_file_share_state() {
    if peers::are_left_out() {
        return;
    }
    let (links, token) = (Way::Local.links(), Token::new());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memory.jsonl");
    let stdio = token.stdio(&peers::memory(), &[]);
    let server = stdio.env("MEMORY_FILE_PATH", file.to_str().unwrap());
    let server = kept("memory", server, EraChoice::Auto);
    let (ann, ben) = (place(), place());
    remembers(&links, &server, &ann, "Ann").await;
    remembers(&links, &server, &ben, "Ben").await;
    assert_eq!(token.tree().len(), 2, "a process each");
    assert_eq!(known(&links, &server, &ann).await, ["Ann", "Ben"]);
    close(&links).await;
    assert_eq!(token.tree(), [0_u32; 0]);
}

/// The other recipe: one memory and one process for all sessions of an owner, kept after their end.
#[tokio::test]
async fn sessions_of_one_owner_can_share_a_memory() {
    if peers::are_left_out() {
        return;
    }
    let (links, token) = (Way::Local.links(), Token::new());
    let stdio = token.stdio(&peers::memory(), &[]);
    let stdio = stdio.env("MEMORY_FILE_PATH", "${owner.dir}/memory.jsonl");
    let options = Options { isolation: Some(Isolation::PerOwner), ..Options::default() };
    let server = Server::with("memory", stdio, options).unwrap();
    let (first, second, other) = (place_of("ann"), place_of("ann"), place_of("ben"));
    remembers(&links, &server, &first, "tea").await;
    assert!(links.end(first.session).await.is_empty());
    remembers(&links, &server, &second, "milk").await;
    remembers(&links, &server, &other, "sugar").await;
    assert_eq!(token.tree().len(), 2, "a process for each owner");
    assert_eq!(known(&links, &server, &second).await, ["milk", "tea"]);
    assert_eq!(known(&links, &server, &other).await, ["sugar"]);
    close(&links).await;
    assert_eq!(token.tree(), [0_u32; 0]);
}

//! Links to child processes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "stdio/eras.rs"]
mod eras;
#[path = "stdio/faulty.rs"]
mod faulty;
#[path = "stdio/flood.rs"]
mod flood;
#[path = "stdio/questions.rs"]
mod questions;
mod support;
#[path = "stdio/traffic.rs"]
mod traffic;
#[path = "stdio/unread.rs"]
mod unread;

use std::os::unix::fs::PermissionsExt as _;

use support::{alive, call, close, legacy, links, open, place, quick, server_with, stdio, token};

/// R037, R102.
#[tokio::test]
async fn child_keeps_its_state_between_calls() {
    let links = links();
    let server = legacy(&[]);
    let (ann, bob) = (place(), place());
    for n in 1..=3 {
        assert_eq!(call(&*open(&links, &server, &ann).await, "count", "{}").await, n.to_string());
    }
    assert_eq!(call(&*open(&links, &server, &bob).await, "count", "{}").await, "1");
    close(&links).await;
}

#[tokio::test]
async fn arguments_environment_and_folder_arrive_unchanged() {
    let links = links();
    let (token, folder) = (token(), tempfile::tempdir().unwrap());
    let odd = format!("{token} two  words \u{e4} '\"$HOME`*");
    let told = stdio(&["--mark", &odd]).env("KEY", "a = \n'b'").cwd(folder.path());
    let link = open(&links, &server_with(told, quick()), &place()).await;
    let cmdline = std::fs::read(format!("/proc/{}/cmdline", call(&link, "pid", "{}").await));
    let arguments = cmdline.unwrap();
    let last = arguments.split(|byte| *byte == 0).rfind(|word| !word.is_empty()).unwrap();
    assert_eq!(String::from_utf8_lossy(last), odd);
    assert_eq!(call(&link, "env", r#"{"name":"KEY"}"#).await, "a = \n'b'");
    assert_eq!(call(&link, "env", r#"{"name":"CARGO_MANIFEST_DIR"}"#).await, "", "ours leaked");
    let there = std::fs::canonicalize(folder.path()).unwrap();
    assert_eq!(call(&link, "cwd", "{}").await, there.to_str().unwrap());
    drop(link);
    close(&links).await;
    assert!(alive(&token).is_empty());
}

/// R034: the folder of a session ends with it.
#[tokio::test]
async fn session_has_its_own_folder_until_it_ends() {
    let links = links();
    let server = server_with(stdio(&[]).env("DIR", "${session.dir}"), quick());
    let (ann, bob) = (place(), place());
    let mut folders = Vec::new();
    for place in [&ann, &bob] {
        let link = open(&links, &server, place).await;
        folders.push(std::path::PathBuf::from(call(&link, "env", r#"{"name":"DIR"}"#).await));
    }
    assert_ne!(folders[0], folders[1]);
    for folder in &folders {
        let mode = std::fs::metadata(folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", folder.display());
        std::fs::write(folder.join("f"), "1").unwrap();
    }
    assert!(links.end(ann.session).await.is_empty());
    assert!(!folders[0].exists() && folders[1].exists());
    // A session that is revived under its id finds an empty folder.
    open(&links, &server, &ann).await;
    assert_eq!(std::fs::read_dir(&folders[0]).unwrap().count(), 0);
    assert!(links.end(ann.session).await.is_empty() && links.end(bob.session).await.is_empty());
    assert!(!folders[0].exists() && !folders[1].exists());
    close(&links).await;
}

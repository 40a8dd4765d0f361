//! Links to child processes.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod world;

use world::{call, close, legacy, links, open, place};

#[tokio::test]
async fn a_child_keeps_its_state_between_calls() {
    let links = links();
    let server = legacy(&[]);
    let (ann, bob) = (place(), place());
    for n in 1..=3 {
        assert_eq!(call(&*open(&links, &server, &ann).await, "count", "{}").await, n.to_string());
    }
    assert_eq!(call(&*open(&links, &server, &bob).await, "count", "{}").await, "1");
    close(&links).await;
}

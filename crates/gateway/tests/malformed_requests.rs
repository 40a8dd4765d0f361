//! Thousands of malformed requests. None of them may cause a server error.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod support;

use std::sync::Arc;

use serde_json::json;
use stayput_testkit::{Random, fuzz, fuzz::front, processes};
use support::{Gateway, LONG, mark, stdio};

const THREADS: usize = 8;
const EACH: usize = 400;

/// R172: a client error is never answered with a server error, leaves no resources behind, and does not affect
/// valid clients.
#[tokio::test]
async fn malformed_requests_affect_no_other_client() {
    let mut random = Random::for_test();
    let mark = mark("invalid_lines");
    let gateway = Gateway::start(json!({ "test": stdio(&mark, &[]) })).await;
    let client = gateway.client("test").await;
    assert_eq!(client.text(&gateway, "count").await, "1");
    let before = (processes::open_files(gateway.pid()), processes::memory(gateway.pid()));
    let address: Arc<str> = gateway.url.trim_start_matches("http://").into();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (address, mut random) = (address.clone(), Random::new(random.number()));
            tokio::task::spawn_blocking(move || {
                let mut session = String::new();
                for n in 0..EACH {
                    if n % 100 == 0 {
                        session = front::connect(&address);
                    }
                    let data: Vec<u8> =
                        (0..64).flat_map(|_| random.number().to_be_bytes()).collect();
                    front::check(&address, &front::request(&data, &session));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.await.unwrap();
    }
    let seeds = tokio::task::spawn_blocking(move || replayed(&address, &mut random));
    for (target, count) in seeds.await.unwrap() {
        assert!(count > 0, "fuzz/seeds/{target} is empty");
    }
    assert_eq!(client.text(&gateway, "count").await, "2", "a good client saw nothing of it");
    assert_eq!(gateway.client("test").await.text(&gateway, "count").await, "1");
    settled(&gateway, before.0).await;
    let grown = processes::memory(gateway.pid()).saturating_sub(before.1);
    assert!(grown < 256 << 20, "{grown} bytes of memory");
}

/// Replays the corpora of the fuzzers, and made-up headers and paths. Returns the size of each corpus.
fn replayed(address: &str, random: &mut Random) -> [(&'static str, usize); 3] {
    for _ in 0..EACH {
        let data: Vec<u8> = (0..32).flat_map(|_| random.number().to_be_bytes()).collect();
        front::check(address, &front::with_headers(&data));
        front::check(address, &front::with_path(&data));
    }
    let replay = |target, make: fn(&[u8]) -> front::Request| {
        (target, fuzz::replay_with(target, |data| front::check(address, &make(data))))
    };
    [
        replay("front", |data| front::request(data, "sp_x")),
        replay("headers", front::with_headers),
        replay("path", front::with_path),
    ]
}

/// R139: no made-up token is accepted, and each is answered as a client error.
#[tokio::test]
async fn made_up_token_is_refused() {
    let mark = mark("invalid_lines-tokens");
    let gateway = Gateway::with(json!({ "test": stdio(&mark, &[]) }), front::with_issuer()).await;
    let address: Arc<str> = gateway.url.trim_start_matches("http://").into();
    let mut random = Random::for_test();
    let seeds = tokio::task::spawn_blocking(move || {
        for _ in 0..EACH {
            let data: Vec<u8> = (0..16).flat_map(|_| random.number().to_be_bytes()).collect();
            front::check_token(&address, &front::with_token(&data));
        }
        fuzz::replay_with("jwt", |data| front::check_token(&address, &front::with_token(data)))
    });
    assert!(seeds.await.unwrap() > 0, "fuzz/seeds/jwt is empty");
}

/// Waits until the sockets are closed. The pipes of the children of opened sessions remain.
async fn settled(gateway: &Gateway, before: usize) {
    let children = 2 * THREADS * EACH.div_ceil(100);
    let start = tokio::time::Instant::now();
    loop {
        let open = processes::open_files(gateway.pid());
        if open <= before + 8 * children {
            return;
        }
        assert!(start.elapsed() < LONG, "{open} files are open, {before} were");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

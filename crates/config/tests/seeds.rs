//! Replays the saved inputs of the configuration fuzzer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod fuzz;

#[test]
fn saved_corpus_passes() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/config");
    let files = std::fs::read_dir(seeds).unwrap();
    let count =
        files.map(|file| fuzz::config(&std::fs::read(file.unwrap().path()).unwrap())).count();
    assert!(count > 0, "fuzz/seeds/config is empty");
}

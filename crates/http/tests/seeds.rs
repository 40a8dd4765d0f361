//! Replays the saved inputs of the fuzzer of responses.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod fuzz;

#[test]
fn response_ends_where_hyper_sees_its_end() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/response");
    let files = std::fs::read_dir(seeds).unwrap();
    let count =
        files.map(|file| fuzz::response(&std::fs::read(file.unwrap().path()).unwrap())).count();
    assert!(count > 0, "fuzz/seeds/response is empty");
}

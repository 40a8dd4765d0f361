//! See `crates/http/tests/fuzz/mod.rs`.
#![no_main]

#[path = "../../crates/http/tests/fuzz/mod.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::response(data));

//! See `stayput_testkit::fuzz::front::path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stayput_testkit::fuzz::front::path(data));

//! See `stayput_testkit::fuzz::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stayput_testkit::fuzz::message(data));

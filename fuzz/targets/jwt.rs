//! See `stayput_testkit::fuzz::front::jwt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stayput_testkit::fuzz::front::jwt(data));

//! Real processes, started and ended by this process itself and by a warden.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

#[macro_use]
#[path = "process/kit.rs"]
mod kit;

#[path = "process/dying.rs"]
mod dying;
#[path = "process/ending.rs"]
mod ending;
#[path = "process/leaking.rs"]
mod leaking;
#[path = "process/starting.rs"]
mod starting;

/// Warden of the tests. Does nothing when the harness runs it.
#[test]
fn the_warden() {
    if std::env::var_os("STAYPUT_WARDEN").is_some() {
        let _ = stayput_process::warden_main();
    }
}

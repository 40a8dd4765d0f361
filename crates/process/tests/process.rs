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

#[path = "process/crash.rs"]
mod crash;
#[path = "process/leaks.rs"]
mod leaks;
#[path = "process/shutdown.rs"]
mod shutdown;
#[path = "process/start.rs"]
mod start;

/// Warden of the tests. Does nothing when the harness runs it.
#[test]
fn the_warden() {
    if std::env::var_os("STAYPUT_WARDEN").is_some() {
        let _ = stayput_process::warden_main();
    }
}

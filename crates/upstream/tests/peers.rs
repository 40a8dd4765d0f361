//! Links to third-party servers and SDKs: real programs, used as a user would.
//!
//! Left out if the peers are not installed, see [`stayput_testkit::peers`].
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

mod support;

#[path = "peers/browser.rs"]
mod browser;
#[path = "peers/dying.rs"]
mod dying;
#[path = "peers/everything.rs"]
mod everything;
#[path = "peers/kit.rs"]
mod kit;
#[path = "peers/listening.rs"]
mod listening;
#[path = "peers/memory.rs"]
mod memory;
#[path = "peers/rmcp.rs"]
mod rmcp;
#[path = "peers/sdks.rs"]
mod sdks;

/// Warden of the tests. Does nothing when the harness runs it.
#[test]
fn the_warden() {
    if std::env::var_os("STAYPUT_WARDEN").is_some() {
        let _ = stayput_process::warden_main();
    }
}

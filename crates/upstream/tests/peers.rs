//! Links to servers and SDKs of others, as they are: real programs, spoken to as a user would.
//!
//! They are left out where the peers are not installed, see [`stayput_testkit::peers`].
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

mod world;

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

/// What tests run as their warden. Run by the harness like the others, it is nothing.
#[test]
fn the_warden() {
    if std::env::var_os("STAYPUT_WARDEN").is_some() {
        let _ = stayput_upstream::process::warden_main();
    }
}

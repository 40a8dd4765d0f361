//! The library, as agents use it: on real processes, real sockets and real stores.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]
#![allow(
    clippy::duplicate_mod,
    reason = "the examples share a file, and are modules of one program only here"
)]

#[path = "agent/world.rs"]
mod world;

#[path = "agent/ffi.rs"]
mod ffi;
#[path = "agent/cancel.rs"]
mod cancel;
#[path = "agent/config.rs"]
mod config;
#[path = "agent/examples.rs"]
mod examples;
#[path = "agent/faces.rs"]
mod faces;
#[path = "agent/handlers.rs"]
mod handlers;
#[path = "agent/losses.rs"]
mod losses;
#[path = "agent/runs.rs"]
mod runs;
#[path = "agent/sessions.rs"]
mod sessions;
#[cfg(feature = "stores")]
#[path = "agent/stores.rs"]
mod stores;
#[path = "agent/stories.rs"]
mod stories;

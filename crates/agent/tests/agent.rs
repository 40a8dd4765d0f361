//! Tests of the library with real processes, sockets and stores.
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

#[path = "agent/support.rs"]
mod support;

#[path = "agent/access.rs"]
mod access;
#[path = "agent/cancellation.rs"]
mod cancellation;
#[path = "agent/config.rs"]
mod config;
#[path = "agent/edge_cases.rs"]
mod edge_cases;
#[path = "agent/examples.rs"]
mod examples;
#[path = "agent/ffi.rs"]
mod ffi;
#[path = "agent/handlers.rs"]
mod handlers;
#[path = "agent/headers.rs"]
mod headers;
#[path = "agent/hooks.rs"]
mod hooks;
#[path = "agent/leftovers.rs"]
mod leftovers;
#[path = "agent/real_servers.rs"]
mod real_servers;
#[path = "agent/runs.rs"]
mod runs;
#[path = "agent/sessions.rs"]
mod sessions;
#[path = "agent/spares.rs"]
mod spares;
#[path = "agent/state_loss.rs"]
mod state_loss;
#[cfg(feature = "stores")]
#[path = "agent/stores.rs"]
mod stores;
#[path = "agent/visibility.rs"]
mod visibility;

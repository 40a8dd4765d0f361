//! Clients of 2026-07-28 over real sockets, in front of servers of both eras.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "modern/aggregate.rs"]
mod aggregate;
#[path = "modern/audit.rs"]
mod audit;
#[path = "modern/changes.rs"]
mod changes;
#[path = "modern/discover.rs"]
mod discover;
#[path = "modern/dual_servers.rs"]
mod dual_servers;
#[path = "modern/kit.rs"]
mod kit;
#[path = "modern/legacy_servers.rs"]
mod legacy_servers;
#[path = "modern/listening.rs"]
mod listening;
#[path = "modern/metrics.rs"]
mod metrics;
#[path = "modern/modern_servers.rs"]
mod modern_servers;
#[path = "modern/streams.rs"]
mod streams;
mod support;
#[path = "modern/validation.rs"]
mod validation;

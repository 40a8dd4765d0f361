//! Clients of 2026-07-28 over real sockets, in front of servers of both eras.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "modern/all.rs"]
mod all;
#[path = "modern/audited.rs"]
mod audited;
#[path = "modern/changes.rs"]
mod changes;
#[path = "modern/counted.rs"]
mod counted;
#[path = "modern/gate.rs"]
mod gate;
#[path = "modern/kept.rs"]
mod kept;
#[path = "modern/kit.rs"]
mod kit;
#[path = "modern/known.rs"]
mod known;
#[path = "modern/listening.rs"]
mod listening;
#[path = "modern/shared.rs"]
mod shared;
#[path = "modern/streams.rs"]
mod streams;
mod world;

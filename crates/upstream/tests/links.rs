//! Link pool: opened once, ended from any task, never over the limits.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

#[path = "links/end.rs"]
mod end;
#[path = "links/flight.rs"]
mod flight;
#[path = "links/keep.rs"]
mod keep;
#[path = "links/killed.rs"]
mod killed;
#[path = "links/room.rs"]
mod room;
#[path = "links/spares.rs"]
mod spares;
mod support;

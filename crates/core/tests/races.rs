//! Concurrent, cancelled and failing operations: no session is lost, leaked or held twice.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

#[path = "races/kit.rs"]
mod kit;

#[path = "races/close.rs"]
mod close;
#[path = "races/end.rs"]
mod end;
#[path = "races/lease.rs"]
mod lease;
#[path = "races/open.rs"]
mod open;
#[path = "races/revive.rs"]
mod revive;
#[path = "races/secret.rs"]
mod secret;
#[path = "races/sweep.rs"]
mod sweep;

//! What happens at once, half-way or against a store that fails: nothing is lost, leaked or held twice.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

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

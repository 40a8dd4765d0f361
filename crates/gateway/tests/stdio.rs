//! `stayput stdio` as IDEs run it: real processes, lines in and lines out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod world;

#[path = "stdio/alone.rs"]
mod alone;
#[path = "stdio/chats.rs"]
mod chats;
#[path = "stdio/daemon.rs"]
mod daemon;
#[path = "clients/driven.rs"]
mod driven;
#[path = "stdio/holder.rs"]
mod holder;
#[path = "stdio/kit.rs"]
mod kit;
#[path = "stdio/modern.rs"]
mod modern;
#[path = "stdio/pasted.rs"]
mod pasted;
#[path = "stdio/peers.rs"]
mod peers;

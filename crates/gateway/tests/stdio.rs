//! `stayput stdio` as IDEs run it: real processes, lines in and lines out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

#[path = "stdio/chats.rs"]
mod chats;
#[path = "stdio/daemon.rs"]
mod daemon;
#[path = "stdio/documentation.rs"]
mod documentation;
#[path = "clients/driven.rs"]
mod driven;
#[path = "stdio/holder.rs"]
mod holder;
#[path = "stdio/kit.rs"]
mod kit;
#[path = "stdio/modern.rs"]
mod modern;
#[path = "stdio/peers.rs"]
mod peers;
#[path = "stdio/standalone.rs"]
mod standalone;
#[path = "stdio/stop.rs"]
mod stop;
#[path = "stdio/transparency.rs"]
mod transparency;

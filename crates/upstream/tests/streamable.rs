//! Streamable HTTP: streams, both eras, credentials and floods.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

#[path = "streamable/credentials.rs"]
mod credentials;
#[path = "streamable/eras.rs"]
mod eras;
#[path = "streamable/floods.rs"]
mod floods;
#[path = "streamable/following.rs"]
mod following;
#[path = "streamable/foreign.rs"]
mod foreign;
#[path = "streamable/listening.rs"]
mod listening;
#[path = "streamable/modern.rs"]
mod modern;
#[path = "streamable/streams.rs"]
mod streams;

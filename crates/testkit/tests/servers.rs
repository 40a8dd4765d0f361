//! The servers of the test kit do what the tests of other crates rely on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "servers/chaos.rs"]
mod chaos;
#[path = "servers/kit.rs"]
#[allow(dead_code, reason = "shared with the tests of the peers")]
mod kit;
#[path = "servers/legacy.rs"]
mod legacy;
#[path = "servers/machine.rs"]
mod machine;
#[path = "servers/modern.rs"]
mod modern;
#[path = "servers/stdio.rs"]
mod stdio;

//! HTTP client against real servers on real sockets (R120, R139).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "http/answers.rs"]
mod answers;
#[path = "http/breaks.rs"]
mod breaks;
#[path = "http/kit.rs"]
mod kit;
#[path = "http/plain.rs"]
mod plain;
#[path = "http/pool.rs"]
mod pool;
#[path = "http/proxies.rs"]
mod proxies;
#[path = "http/redirects.rs"]
mod redirects;
#[path = "http/tls.rs"]
mod tls;

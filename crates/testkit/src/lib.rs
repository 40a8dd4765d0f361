//! Test helpers of Stayput. Not published.
//!
//! | module | contents |
//! |---|---|
//! | [`fixture`] | opened database for the store conformance tests |
//! | [`faulty`] | store that fails or waits on request |
//! | [`Authority`] | certificate authority and a server certificate |
//! | [`LogLines`] | writer of a `tracing` subscriber, to read what it wrote |
//! | [`Relay`] | TCP relay that can be observed, cut and held |
//! | [`ReverseProxy`] | real nginx or HAProxy in front of a gateway |
//! | [`redis`], [`postgres`] | real database servers, each with its own port and folder |
//! | `model` | simplest possible store, to compare the real ones with |
//! | [`stories`] | random operations on stores: sequential against the model, and concurrent |
//! | [`fuzz`] | properties of every parser of untrusted text, for the fuzzer and its saved corpus |
//! | [`mcp`] | small stateful MCP servers of both eras, with scripted faults |
//! | `conformance` | server on the official SDK that passes the official suite (a feature) |
//! | `sdk_client` | client on the same SDK (the same feature) |
//! | [`peers`] | third-party servers and SDKs, from the user's cache |
//! | [`program`](fn@program), [`processes`] | programs of this crate; processes on this machine |
//! | [`until`], [`until_some`] | waits for conditions |
//! | [`Random`] | reproducible random numbers, from a seed |
//!
//! Servers are started as children and killed on drop. `make test` starts one of each for all tests and names them in
//! `STAYPUT_TEST_REDIS`, `STAYPUT_TEST_REDIS_CLUSTER` and `STAYPUT_TEST_POSTGRES`; without these variables every test
//! starts its own.

// An error in this crate is a failed test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::disallowed_methods
)]

mod authority;
mod balancer;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod faulty;
pub mod fixture;
pub mod fuzz;
pub mod layout;
mod log_lines;
pub mod mcp;
mod model;
pub mod peers;
pub mod postgres;
pub mod processes;
mod program;
mod random;
pub mod redis;
mod relay;
mod reverse_proxy;
#[cfg(feature = "conformance")]
pub mod sdk_client;
mod server;
pub mod skips;
pub mod stories;
mod wait;

pub use authority::Authority;
pub use balancer::{BalancedRequest, Balancer};
pub use log_lines::LogLines;
pub use program::program;
pub use random::Random;
pub use relay::Relay;
pub use reverse_proxy::{ProxyKind, ReverseProxy};
pub use wait::{until, until_some};

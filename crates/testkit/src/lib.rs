//! What the tests of Stayput are made of. Not published.
//!
//! | room | holds |
//! |---|---|
//! | [`fixture`] | an opened database, for the promises |
//! | [`faulty`] | a store that fails or waits when it is told to |
//! | [`redis`], [`postgres`] | real database servers, each on a port and in a folder of its own |
//! | `model` | the simplest store there can be, to compare the real ones with |
//! | [`stories`] | random stories for stores: one after the other against the model, and all at once |
//! | [`fuzz`] | what every parser of untrusted text must hold, for the fuzzer and its saved corpus |
//! | [`mcp`] | tiny stateful MCP servers of both eras, which go wrong as they are told |
//! | `conformance` | a server on the official SDK that passes the official suite (a feature) |
//! | `sdk_client` | a client on the same SDK (the same feature) |
//! | [`peers`] | servers and SDKs of others, from the user's cache |
//! | [`program`](fn@program), [`processes`] | the programs of this crate; what runs on this machine |
//! | [`Random`] | chance that can be had again, from a seed |
//!
//! Servers are started as children and killed when they are dropped. `make test` starts one of each
//! for all tests and names them in `STAYPUT_TEST_REDIS`, `STAYPUT_TEST_REDIS_CLUSTER` and
//! `STAYPUT_TEST_POSTGRES`; without these every test starts its own.

// Whatever goes wrong in here is a test that fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::disallowed_methods
)]

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod faulty;
pub mod fixture;
pub mod fuzz;
pub mod layout;
pub mod mcp;
mod model;
pub mod peers;
pub mod postgres;
pub mod processes;
mod program;
mod random;
pub mod redis;
#[cfg(feature = "conformance")]
pub mod sdk_client;
mod server;
pub mod stories;

pub use program::program;
pub use random::Random;

//! Effect of every key of the configuration: a gateway with the key and a gateway without it behave differently.
//!
//! Each key of `docs/stayput.schema.json` has a row in one of the tables below, which becomes a test. The test starts the
//! gateway twice and fails if both runs look the same, so a key whose value is parsed and then not used is found. A key
//! without a row fails the walk over the schema.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "config_keys/kit.rs"]
#[macro_use]
mod kit;
#[path = "config_keys/auth.rs"]
mod auth;
#[path = "config_keys/choices.rs"]
mod choices;
#[path = "config_keys/identify.rs"]
mod identify;
#[path = "owners/issuer.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod issuer;
#[path = "config_keys/limits.rs"]
mod limits;
#[path = "config_keys/server.rs"]
mod server;
#[path = "config_keys/settings.rs"]
mod settings;
mod support;
#[path = "config_keys/walk.rs"]
mod walk;

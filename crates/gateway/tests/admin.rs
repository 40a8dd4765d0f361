//! Admin API, `stayput sessions`, `stayput call`, audit and traces of a running gateway.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "admin/api.rs"]
mod api;
#[path = "admin/audit.rs"]
mod audit;
#[path = "admin/commands.rs"]
mod commands;
#[path = "admin/document.rs"]
mod document;
#[path = "admin/documentation.rs"]
mod documentation;
#[path = "admin/kit.rs"]
mod kit;
#[path = "admin/listing.rs"]
mod listing;
#[path = "admin/roles.rs"]
mod roles;
mod support;

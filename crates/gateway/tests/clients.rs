//! Third-party clients and servers with the gateway between them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod support;

#[path = "clients/chats.rs"]
mod chats;
#[path = "clients/driven.rs"]
mod driven;
#[path = "clients/eras.rs"]
mod eras;
#[path = "clients/everything.rs"]
mod everything;
#[path = "clients/isolation.rs"]
mod isolation;
#[path = "clients/recipe.rs"]
mod recipe;
#[path = "clients/recipes.rs"]
mod recipes;
#[path = "clients/restart.rs"]
mod restart;

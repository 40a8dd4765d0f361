//! Session state for people who write MCP servers.
//!
//! Revision 2026-07-28 of the protocol has no sessions. A server that remembers something between calls needs to know
//! whose call it is, find what it has for that conversation, and let go of it in time. This crate does that for servers
//! written with [rmcp], for clients of both eras, over HTTP and stdio, on one machine or many.
//!
//! ```no_run
//! use std::sync::Arc;
//! use rmcp::{ServerHandler, handler::server::tool::ToolRouter, tool, tool_handler, tool_router};
//! use stayput_server::{Error, Keeper, State};
//!
//! #[derive(Clone)]
//! struct Counter { tools: Arc<ToolRouter<Self>> }
//!
//! #[tool_router]
//! impl Counter {
//!     #[tool(description = "Counts")]
//!     async fn count(&self, state: State) -> Result<String, Error> {
//!         state.update("count", |n: &mut u64| { *n += 1; n.to_string() }).await
//!     }
//! }
//!
//! #[tool_handler(router = self.tools)]
//! impl ServerHandler for Counter {}
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let keeper = Keeper::memory();
//! let counter = Counter { tools: Arc::new(keeper.tools().mount(Counter::tool_router())) };
//! let app: axum::Router = axum::Router::new().route_service("/mcp", keeper.http(move || Ok(counter.clone())));
//! # Ok(())
//! # }
//! ```
//!
//! # The life of a request
//!
//! 1. **The layer** ([`Keeper::layer`], or [`Keeper::over`] for other transports) reads what names the session, takes out what
//!    is not for the tool, and passes the request on. A connection of somebody else ends here.
//! 2. **The handler** has a [`State`]. Its first use finds the session, or makes it; a handler that never uses it costs
//!    nothing.
//! 3. **Each change** is in the store before the call returns. Nothing is saved later, and nothing has to be.
//! 4. **The answer** streams as it is made. The session is in use until its end.
//! 5. **From time to time** a task of the keeper writes times of use and ends what is due.
//!
//! The guide is `docs/servers.md`.

mod answer;
mod ask;
mod builder;
mod carrier;
mod cookie;
mod error;
mod events;
mod extract;
mod head;
mod keeper;
mod layer;
mod legacy;
mod line;
mod listed;
mod manager;
mod name;
mod over;
mod pieces;
mod scope;
mod serving;
mod shared;
mod state;
mod tools;
mod visit;

pub use answer::Answer;
pub use builder::{Builder, Unnamed};
pub use carrier::Carrier;
pub use cookie::{Cookie, SameSite};
pub use error::Error;
pub use extract::MaybeState;
pub use keeper::Keeper;
pub use layer::{Layer, Layered};
pub use legacy::Whole;
pub use manager::{Counted, Manager};
pub use over::Kept;
pub use serving::Serving;
pub use state::{Info, State};
pub use stayput_core::{
    Clock, Events, Expiry, Handle, InvalidText, OpenError, Owner, SessionId, StateError, StateKey,
    StateLimits, Store,
};
pub use tools::Tools;

/// The examples of the guide are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/servers.md")]
struct Guide;

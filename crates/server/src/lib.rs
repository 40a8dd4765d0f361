//! Session state for people who write MCP servers.
//!
//! Revision 2026-07-28 of the protocol has no sessions. A server that remembers something between calls needs to know
//! whose call it is, find what it has for that conversation, and let go of it in time. This crate does that for servers
//! written with [rmcp], for clients of both eras, over HTTP and stdio, on one machine or many.
//!
//! ```no_run
//! use std::sync::Arc;
//! use rmcp::{ServerHandler, handler::server::tool::ToolRouter, tool, tool_handler, tool_router};
//! use stayput_server::{Error, ServerSessions, State};
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
//! let sessions = ServerSessions::in_memory();
//! let counter = Counter { tools: Arc::new(sessions.session_tools().mount(Counter::tool_router())) };
//! let app: axum::Router = axum::Router::new().route_service("/mcp", sessions.http_service(move || Ok(counter.clone())));
//! # Ok(())
//! # }
//! ```
//!
//! # The life of a request
//!
//! 1. **The layer** ([`ServerSessions::layer`], or [`ServerSessions::wrap_transport`] for other transports) reads what names the session, takes out what
//!    is not for the tool, and passes the request on. A connection of somebody else ends here.
//! 2. **The handler** has a [`State`]. Its first use finds the session, or makes it; a handler that never uses it costs
//!    nothing.
//! 3. **Each change** is in the store before the call returns. Nothing is saved later, and nothing has to be.
//! 4. **The answer** streams as it is made. The session is in use until its end.
//! 5. **From time to time** a task of the sessions writes times of use and ends what is due.
//!
//! The guide is `docs/servers.md`.

mod builder;
mod error;
mod extract;
mod http;
mod names;
mod registry;
mod request;
mod sessions;
mod state;
mod tools;
mod transport;

pub use self::http::{
    CountingTransport, HttpService, HttpSessionManager, ResponseBody, ResponseFuture, SessionLayer,
    SessionService,
};
pub use builder::Builder;
pub use error::Error;
pub use extract::MaybeState;
pub use names::{
    cookie::{Cookie, SameSite},
    source::NameSource,
};
pub use sessions::{MissingSession, ServerSessions};
pub use state::{SessionInfo, State};
pub use stayput_core::{
    Clock, Events, Expiry, Handle, InvalidText, OpenError, Owner, SessionId, StateError, StateKey,
    StateLimits, Store,
};
pub use tools::SessionTools;
pub use transport::SessionTransport;

/// The examples of the guide are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/servers.md")]
struct Guide;

//! Session state for authors of MCP servers.
//!
//! Revision 2026-07-28 of the protocol has no sessions. A server that keeps state between calls must identify the
//! conversation of each call, find its state and delete that state in time. This crate does so for servers written
//! with [rmcp], for clients of both eras, over HTTP and stdio, on one machine or many.
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
//! 1. **The layer** ([`ServerSessions::layer`], or [`ServerSessions::wrap_transport`] for other transports) reads the
//!    session names of the request, removes those that are not meant for the tool, and passes the request on. It refuses
//!    a connection of another owner.
//! 2. **The handler** has a [`State`]. Its first use finds or creates the session; a handler that does not use it
//!    costs nothing.
//! 3. **Each change** is in the store before the call returns. Nothing is saved later.
//! 4. **The response** is streamed. The session counts as in use until the stream ends.
//! 5. **A background task** writes the times of last use and ends expired sessions.
//!
//! # Files
//!
//! | file or folder | content |
//! |---|---|
//! | `sessions.rs`, `builder.rs` | [`ServerSessions`] and its builder |
//! | `http/` | tower layer, and rmcp's HTTP service with session manager and event log |
//! | `transport.rs` | sessions over transports that serve one client, such as stdio |
//! | `names/` | session names in a request: order of the sources, headers |
//! | `request/` | parser of requests, the session of a request, current request of a task |
//! | `registry/` | sessions that several processes serve at once: cache, creation, maintenance |
//! | `state.rs`, `extract.rs` | [`State`], and how handlers get it |
//! | `tools/` | session argument of each tool, session tools |
//! | `error.rs` | errors with their HTTP status, JSON-RPC code and message |
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
pub use names::source::NameSource;
pub use sessions::{MissingSession, ServerSessions};
pub use state::{SessionInfo, State};
pub use stayput_core::{
    Clock, EventLog, Expiry, Handle, InvalidText, Owner, SessionId, SessionOpenError, StateError,
    StateKey, StateLimits, Store,
};
pub use stayput_identify::{Cookie, SameSite};
pub use tools::SessionTools;
pub use transport::SessionTransport;

/// Runs the examples of the guide as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/servers.md")]
struct Guide;

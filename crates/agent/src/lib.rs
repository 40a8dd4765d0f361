//! Stateful MCP servers for agents: sessions that follow the task, shared with sub-agents by choice,
//! closed for certain.
//!
//! A browser has a page open, a shell has a working directory, a database has a transaction. An agent that
//! opens a connection for every call loses this state; one that shares a process among all chats mixes it
//! up. A [`Hub`] knows the servers: all calls of a conversation or a run, sub-agents included, reach the same live
//! server, and everything is closed when the conversation or run ends, however it ends.
//!
//! ```no_run
//! use serde_json::json;
//! use stayput::{Hub, Stdio, SubAgent as _};
//!
//! # async fn research(_: &str) -> Result<(), stayput::Error> { Ok(()) }
//! # async fn example() -> Result<(), stayput::Error> {
//! let hub = Hub::builder()
//!     .server("browser", Stdio::new("npx").args(["-y", "@playwright/mcp", "--isolated"]))
//!     .build()?;
//!
//! // Run: the session is opened by the first call and ends with the future.
//! hub.run(async {
//!     hub.call("browser", "browser_navigate", json!({ "url": "https://example.com" })).await?;
//!     tokio::try_join!(research("shares the browser"), research("has its own").isolated("browser"))
//! })
//! .await?;
//!
//! // Conversation: the next request finds the session again by its name.
//! let chat = hub.session("chat-42").await?;
//! match chat.call("browser", "browser_snapshot", json!({})).await {
//!     Err(error) if error.is_state_lost() => println!("begin again: {error}"),
//!     page => println!("{}", page?.text()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The life of a call
//!
//! 1. **Session.** A call belongs to the session it is called on ([`Session::call`]), else to that of the task's scope
//!    ([`Hub::run`], [`Session::run`]), else to the default session ([`Hub::enable_default_session`]), else it is an
//!    error that says what to do. A scope follows `.await`, `join!` and `select!`; [`spawn`] passes it to a new task.
//! 2. **Link.** Session and server have one link. The first call opens it; fifty concurrent first calls open it once.
//!    A sub-agent uses the same link, its own ([`SubAgent::isolated`]) or none ([`SubAgent::denied`]).
//! 3. **Loss.** If the state was lost since the scope's last call, the call is not sent: it is an error, once, with the
//!    generation that begins ([`Error::is_state_lost`]).
//! 4. **Call.** It is sent once, never twice. Dropping it cancels it on the server, too. Requests that the server sends
//!    meanwhile are answered by [`Handlers`].
//! 5. **End.** A run ends its session. A named session is released, and ends by [`Session::end`], by its expiry, or,
//!    if it is in memory, with the hub ([`Hub::close`]). No child process outlives its session.
//!
//! Links run on the hub's own thread, so they outlive the runtime of the caller that opened them, and calls can be
//! awaited on any executor.
//!
//! # Files
//!
//! | file or folder | content |
//! |---|---|
//! | `hub/` | hub, its builder and its start, servers, their headers and stderr, connection to a gateway, thread, default session, known generations, closing |
//! | `session/` | sessions by name, guard, task scope, runs, sub-agents, links, kept session ids, list cache, notifications, tickets |
//! | `call/` | tool calls, other requests, results, prompts, resources, completion, lists |
//! | `handlers.rs` | handlers of requests that servers send |
//! | `events.rs`, `error.rs` | events of sessions; errors |
//! | `ffi.rs` | explicit scopes and raw lists, for bindings to other languages |

// One of its examples opens a store.
#[cfg(all(doctest, feature = "stores"))]
#[doc = include_str!("../../../docs/agents.md")]
struct Guide;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/credentials.md")]
struct Credentials;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod call;
mod error;
mod events;
pub mod ffi;
mod handlers;
mod hub;
mod session;

pub use call::{CallResult, Content, Prompt, Resource, Tool, ToolCall, ToolResult};
pub use error::{Error, StateLost};
pub use events::{Event, Events};
pub use handlers::Handlers;
pub use hub::{
    Builder, CloseReport, DefaultSessionOptions, HeaderList, HeaderRequest, Headers, Hub,
    StderrLine,
};
pub use session::{
    KeptLink, Notifications, RunStream, ServerNotification, Session, SessionIdKeeper, SessionInfo,
    SessionStatus, SubAgent, SubAgentFuture, Ticket, scoped,
};
pub use stayput_config::{ConfigError, OnLoss};
pub use stayput_core::{Expiry, Generation, SessionId, Store, Timestamp, scope::spawn};
pub use stayput_process::{ExitStatus, WardenCommand, warden_main};
pub use stayput_upstream::{
    EraChoice, Http, Isolation, Limits, Options, Proxy, Server, Stdio, Target, TargetError,
    Timeouts, TransportConfig, Trust,
};

//! Stateful MCP servers for agents: sessions that follow the task, shared with sub-agents by choice,
//! closed for certain.
//!
//! A browser has a page open, a shell has a working directory, a database has a transaction. An agent that
//! opens a connection for every call loses all of it; one that shares a process among all chats mixes it
//! up. A [`Hub`] knows the servers; every call of a conversation or a run lands on the same live server,
//! sub-agents included, and everything is closed when it ends, however it ends.
//!
//! ```no_run
//! use serde_json::json;
//! use stayput::{Hub, Stdio, SubAgent as _};
//!
//! # async fn research(_: &str) -> Result<(), stayput::Error> { Ok(()) }
//! # async fn example() -> Result<(), stayput::Error> {
//! let hub = Hub::builder()
//!     .server("browser", Stdio::new("npx").args(["-y", "@playwright/mcp"]))
//!     .build()?;
//!
//! // A run: opened by the first call, ended with the future.
//! hub.run(async {
//!     hub.call("browser", "browser_navigate", json!({ "url": "https://example.com" })).await?;
//!     tokio::try_join!(research("shares the browser"), research("has its own").isolated("browser"))
//! })
//! .await?;
//!
//! // A conversation: the next request finds it again by its name.
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
//! 1. **Which session?** The one it is called on ([`Session::call`]), else that of the scope the task runs in
//!    ([`Hub::run`], [`Session::run`]), else the automatic one ([`Hub::automatic`]), else it is an error that says
//!    what to do. A scope follows `.await`, `join!` and `select!`; [`spawn`] takes it along to a task of its own.
//! 2. **Which link?** Session and server lead to one link; the first call opens it, and fifty first calls at once
//!    open it once. A sub-agent has the same one, its own ([`SubAgent::isolated`]) or none ([`SubAgent::denied`]).
//! 3. **Is what the agent remembers still true?** If the state was lost since this scope last looked, the
//!    call is not made: it is an error, once, with the generation that begins ([`Error::is_state_lost`]).
//! 4. **The call** is sent once, never twice. Dropped, it is cancelled on the server, too. What the server asks
//!    meanwhile is answered by [`Handlers`].
//! 5. **The end**: a run ends its session; a named session is released, and ends by [`Session::end`], by
//!    its expiry, or, if it is kept in memory, with the hub ([`Hub::close`]). No child process outlives any of it.
//!
//! Links live on a thread of the hub's own, so they outlive the runtime of whoever opened them, and calls
//! can be awaited on any executor.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/agents.md")]
struct Guide;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod ambient;
mod automatic;
mod branch;
mod builder;
pub mod by_hand;
mod call;
mod closing;
mod error;
mod events;
mod handlers;
mod hold;
mod home;
mod hub;
mod keeper;
mod lists;
mod offers;
mod reply;
mod request;
mod result;
mod run;
mod seen;
mod servers;
mod session;
mod streaming;
mod ticket;
mod visit;

pub use automatic::Automatic;
pub use builder::Builder;
pub use call::ToolCall;
pub use closing::Report;
pub use error::{Error, StateLost};
pub use events::{Event, Events};
pub use handlers::Handlers;
pub use hub::Hub;
pub use lists::{Prompt, Resource, Tool};
pub use reply::Reply;
pub use result::{Content, ToolResult};
pub use run::{Sub, SubAgent};
pub use session::{Info, Session, Status};
pub use stayput_config::{ConfigError, OnLoss};
pub use stayput_core::{self as core, Expiry, Generation, SessionId, Timestamp, scope::spawn};
pub use stayput_upstream::{
    self as upstream, EraChoice, Http, Isolation, Limits, Options, Stdio, Timeouts, Transport,
    process::{WardenCommand, warden_main},
};
pub use streaming::RunStream;
pub use ticket::Ticket;

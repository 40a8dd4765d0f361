//! Live, recoverable links to MCP servers.
//!
//! A link is the whole stack from a session to one server: a child process or an HTTP client, its reader, and
//! the negotiated protocol. It forwards messages as they were written, tracks the outcome of each call, and
//! reports when the state behind it is lost.
//!
//! ```
//! use std::time::Duration;
//! use stayput_core::{Owner, SessionId, Timestamp};
//! use stayput_upstream::{
//!     Asking, CallOptions, Folders, LinkOwner, LinkSettings, Links, Server, Stdio, process::Processes,
//! };
//! use tokio::runtime::Handle;
//!
//! # let program = stayput_testkit::program("stayput-testserver");
//! # let command = program.to_str().unwrap();
//! # tokio::runtime::Runtime::new()?.block_on(async move {
//! let processes = Processes::local(Handle::current());
//! let links = Links::new(LinkSettings::new(processes, Folders::temporary()?), Handle::current());
//!
//! let counter = Server::new("counter", Stdio::new(command).args(["stdio"]))?;
//! let chat = LinkOwner::new(Owner::local(), SessionId::generate(Timestamp::from_millis(0)));
//!
//! // The first caller opens the link; concurrent callers share it.
//! let link = links.open(&counter, &chat, &Asking::default()).await?;
//! for n in ["1", "2"] {
//!     let count = link.call("tools/call", Some(r#"{"name":"count"}"#), CallOptions::default());
//!     let answer = count.await?.answer().await?;
//!     assert!(answer.result().unwrap().contains(&format!("\"text\":\"{n}\"")));
//! }
//!
//! drop(link);
//! let _ = links.end(chat.session).await; // ends its process and all descendants
//! links.close(Duration::from_secs(5)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | content |
//! |---|---|
//! | `server.rs`, `server/` | [`Server`]: configuration |
//! | `place.rs`, `folders.rs` | [`LinkOwner`]: owner of a link; [`Folders`]: private directories |
//! | `links.rs`, `links/`, `budget.rs`, `budget/` | [`Links`]: pool of links; limits and waiting requests |
//! | `opener.rs`, `seat.rs`, `started.rs`, `handshake.rs` | opening: shared clients and processes, handshakes |
//! | `profile.rs`, `profiles.rs` | [`Profile`]: cached properties and lists of a server |
//! | `link.rs`, `link/` | [`Link`] and [`Call`]: ids, progress, order, cancellation, server requests |
//! | `stdio.rs`, `stdio/`, `process.rs`, `process/` | transport over pipes; [`process`]: start and end of children |
//! | `streamable.rs`, `streamable/`, `sse.rs` | transports Streamable HTTP and HTTP+SSE |
//! | `http.rs`, `http/` | [`http`]: HTTP client |
//! | `loss.rs`, `verdict.rs`, `delivery.rs` | [`Loss`]: why state is gone; [`Delivery`]: how far a call got |
//! | `redactor.rs` | redaction of secrets, and of paths and queries in texts for clients |
//! | `attachment.rs`, `keeper.rs`, `seal.rs` | [`Attachment`]: data to resume a link; [`AttachmentSink`]: its storage |
//!
//! # Guarantees
//!
//! - A call is sent once. It is sent again only if the server provably did not execute it, and only after the
//!   server refused its headers.
//! - A call belongs to the link. Dropping its [`Call`] cancels it, once. A caller that is cancelled while it
//!   opens a link cancels no other caller.
//! - When a link ends, its calls in flight fail at once. The next link has the next generation.
//! - No child process survives its link, even if it tries to detach itself.
//!
//! # Limits
//!
//! The crate has no types for tools and results, does not choose the session of a request, and has no store:
//! attachments are passed to the caller's storage.
//!
//! Transports are private (R144): a transport without its link would have the session, but not the loss.
//!
//! ```compile_fail
//! use stayput_upstream::streamable::Streamable;
//! ```

mod attachment;
mod backoff;
mod budget;
mod delivery;
mod flag;
mod folders;
mod handshake;
pub mod http;
mod keeper;
mod lane;
mod link;
mod links;
mod lock;
mod loss;
mod nearest;
mod open_error;
mod opener;
mod place;
pub mod process;
mod profile;
mod profiles;
mod redactor;
mod seal;
mod seat;
mod server;
mod shared;
mod sse;
mod started;
mod stdio;
mod streamable;
mod verdict;

pub use attachment::{Attachment, AttachmentError};
pub use budget::{
    AtCapacity, Budget, Cost, Limits, Obstacle, PerOwner, Permit, Recycle, Used, Wanted,
};
pub use delivery::Delivery;
pub use folders::{FolderError, Folders, Kept};
pub use keeper::{AttachmentSink, KeepError};
pub use lane::Lane;
pub use link::{
    Answer, Call, CallError, CallOptions, Canceller, Declares, Greeting, Hello, Incoming,
    InvalidHello, Link, LinkCounts, Listener, ServerRequest,
};
pub use links::{
    Asking, Closed, LinkHint, LinkReport, LinkSettings, LinkState, LinkStatus, Links, PooledLink,
    Retiring,
};
pub use loss::{Loss, LossReason};
pub use nearest::{misspelt, nearest};
pub use open_error::LinkOpenError;
pub use place::{LinkKey, LinkOwner, Scope};
pub use profile::{Profile, Way};
pub use seal::{SealError, SealKey};
pub use server::{
    Endpoint, EraChoice, Expansion, HeaderAsk, HeaderProvider, Http, Identity, Isolation, Launch,
    Options, ProviderError, Resolved, Server, ServerError, ServerProblem, Stdio, Timeouts,
    Transport, Warm,
};
pub use shared::Shared;

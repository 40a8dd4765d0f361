//! Live, recoverable links to MCP servers.
//!
//! A link is the whole stack from a session to one server: a child process or an HTTP client, its reader, and
//! the negotiated protocol. It forwards messages as they were written, tracks the outcome of each call, and
//! reports when the state behind it is lost.
//!
//! ```
//! use std::time::Duration;
//! use stayput_core::{Owner, SessionId, Timestamp};
//! use stayput_process::Processes;
//! use stayput_upstream::{
//!     LinkOpenOptions, CallOptions, SessionDirs, LinkOwner, LinkSettings, Links, Server, Stdio,
//! };
//! use tokio::runtime::Handle;
//!
//! # let program = stayput_testkit::program("stayput-testserver");
//! # let command = program.to_str().unwrap();
//! # tokio::runtime::Runtime::new()?.block_on(async move {
//! let processes = Processes::local(Handle::current());
//! let links = Links::new(LinkSettings::new(processes, SessionDirs::temporary()?), Handle::current());
//!
//! let counter = Server::new("counter", Stdio::new(command).args(["stdio"]))?;
//! let chat = LinkOwner::new(Owner::local(), SessionId::generate(Timestamp::from_millis(0)));
//!
//! // The first caller opens the link; concurrent callers share it.
//! let link = links.open(&counter, &chat, &LinkOpenOptions::default()).await?;
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
//! | folder | content |
//! |---|---|
//! | `server/` | [`Server`]: configuration, templates, redaction of secrets; [`LinkKey`]: key of a link |
//! | `budget/` | [`Budget`]: limits of links and processes, and the queue for them |
//! | `session_dirs/` | [`SessionDirs`]: private directories of sessions and owners |
//! | `loss/` | [`Loss`]: why state is gone; detection of "session not found" answers |
//! | `link/` | [`Link`] and [`Call`]: ids, progress, order, cancellation, server requests |
//! | `link/transport/` | stdio, Streamable HTTP, HTTP+SSE |
//! | `open/` | opening: process or HTTP client, handshake, [`Profile`], [`Attachment`] and its encryption |
//! | `pool/` | [`Links`]: one link per key, spares, cached profiles, reports |
//! | `util/` | locks, flags, backoff |
//!
//! Each folder uses only those above it, and `util/`. Child processes are in `stayput-process`, the HTTP client
//! is in `stayput-http`.
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
//! use stayput_upstream::link::transport::streamable::Streamable;
//! ```

mod budget;
mod link;
mod loss;
mod open;
mod pool;
mod server;
mod session_dirs;
mod util;

pub use budget::{
    AtCapacity, Budget, BudgetUsage, Cost, Limits, Obstacle, PerOwner, Permit, Recycle,
    RecycleFilter,
};
pub use link::{
    Answer, Call, CallError, CallOptions, Canceller, ClientCapabilities, ClientInfo, Incoming,
    InvalidClientInfo, Link, LinkCounts, Listener, ServerRequest,
};
pub use loss::{Loss, LossReason};
pub use open::{
    attachment::{Attachment, AttachmentError},
    attachment_sink::{AttachmentSink, AttachmentStoreError},
    error::LinkOpenError,
    profile::{Profile, ServerProtocol},
    seal::{SealError, SealKey},
};
pub use pool::{
    CloseSummary, LinkHint, LinkOpenOptions, LinkReport, LinkSettings, LinkState, LinkStatus,
    LinkSweepReport, Links, PooledLink, RemoteSession, Retirement, SpareReport,
    shared_state::SharedStateId,
};
pub use server::{
    Endpoint, EraChoice, Expansion, HeaderProvider, HeaderRequest, Http, Identity,
    InitializeResult, Isolation, Launch, Options, ProviderError, ResolvedTransport, Server,
    ServerError, ServerProblem, SpareOptions, StderrLineSink, StderrSink, Stdio, Timeouts,
    TransportConfig,
    link_key::{LinkKey, LinkOwner, Scope},
    suggest::{misspelt, nearest},
};
pub use session_dirs::{SessionDirError, SessionDirs, UnremovedPaths};
pub use stayput_http::{Delivery, Proxy, Target, TargetError, Trust, Worker};
pub use stayput_process::{Grace, ProcessInfo};

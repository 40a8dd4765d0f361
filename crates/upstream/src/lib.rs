//! Live, recoverable links to MCP servers.
//!
//! A link is the whole stack from a session to one server: a child process or an HTTP client, whoever
//! reads it, and what was agreed with the server. It passes messages on as they were written, knows
//! what became of each call, and says so when the state behind it is gone.
//!
//! ```
//! use std::time::Duration;
//! use stayput_core::{Owner, SessionId, Timestamp};
//! use stayput_upstream::{
//!     Asking, CallOptions, Folders, LinkSettings, Links, Place, Server, Stdio, process::Processes,
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
//! let chat = Place::new(Owner::local(), SessionId::generate(Timestamp::from_millis(0)));
//!
//! // The first who asks opens the link; everybody who asks meanwhile gets the same one.
//! let link = links.open(&counter, &chat, &Asking::default()).await?;
//! for n in ["1", "2"] {
//!     let count = link.call("tools/call", Some(r#"{"name":"count"}"#), CallOptions::default());
//!     let answer = count.await?.answer().await?;
//!     assert!(answer.result().unwrap().contains(&format!("\"text\":\"{n}\"")));
//! }
//!
//! drop(link);
//! let _ = links.end(chat.session).await; // its process and all that descends from it are gone
//! links.close(Duration::from_secs(5)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file or folder | content |
//! |---|---|
//! | `server/`, `place.rs`, `folders/` | [`Server`]: configured server; [`Place`]: owner and session of a link; [`Folders`]: folders that are private to a session |
//! | `links/`, `budget/`, `shared.rs` | [`Links`]: pool with one link per session and server, spares; limits and queue; generations of a link that sessions share |
//! | `opener.rs`, `seat.rs`, `started.rs`, `handshake.rs`, `profile.rs`, `profiles/` | opening of a link: permit, process, handshake; [`Profile`]: knowledge about a server |
//! | `link/` | [`Link`] and [`Call`]: ids, progress, order, cancellation, requests of the server; the same on every transport |
//! | `stdio/`, `process/` | transport over the pipes of a child; [`process`]: child processes, warden, watchdog |
//! | `streamable/`, `sse.rs`, `http/` | transports Streamable HTTP and HTTP+SSE; [`http`]: HTTP client below them |
//! | `loss.rs`, `verdict.rs`, `delivery.rs`, `open_error.rs` | [`Loss`]: reason why state is gone; answers that report an unknown session; [`Delivery`]: certainty about a failed call; [`OpenError`] |
//! | `attachment.rs`, `keeper.rs`, `seal.rs` | [`Attachment`]: data to resume a session from another process; [`Keeper`]: saves it; [`SealKey`]: encryption at rest |
//! | `redactor.rs` | removal of secrets, paths and queries from texts of servers |
//! | `lane.rs` | [`Lane`]: thread whose runtime drives the links of its calls |
//! | `backoff.rs`, `flag.rs`, `lock.rs`, `nearest.rs` | growing pauses; one-time flag; locks that ignore poisoning; nearest valid name |
//!
//! # What it promises
//!
//! - A call is sent once. Only what the server provably did not execute is ever sent again, and of that
//!   only a request whose headers the server refused.
//! - A call belongs to the link: who drops its [`Call`] cancels it, once; who is cancelled while opening
//!   a link cancels nobody else.
//! - A link that is over fails what is in flight at once. The next one has the next generation.
//! - Nothing is left of a child process, whatever it did to get away.
//!
//! # What it is not
//!
//! It has no types for tools and results, no opinion on which session a request means, and no store: an
//! attachment goes out to whoever keeps it.
//!
//! What is under a link is nobody's business (R144): a transport of its own would have the session, and not the loss.
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
pub use keeper::{KeepError, Keeper};
pub use lane::Lane;
pub use link::{
    Answer, Asked, Call, CallError, CallOptions, Canceller, Declares, Greeting, Hello, Incoming,
    InvalidHello, Link, LinkCounts, Listener,
};
pub use links::{
    Asking, Closed, Held, LinkReport, LinkSettings, LinkStatus, Links, Retiring, Spot, Standing,
};
pub use loss::{Loss, LossReason};
pub use nearest::{misspelt, nearest};
pub use open_error::OpenError;
pub use place::{LinkKey, Place, Scope};
pub use profile::{Profile, Way};
pub use seal::{SealError, SealKey};
pub use server::{
    Endpoint, EraChoice, Expansion, HeaderAsk, HeaderProvider, Http, Identity, Isolation, Launch,
    Options, ProviderError, Resolved, Server, ServerError, ServerProblem, Stdio, Timeouts,
    Transport, Warm,
};
pub use shared::Shared;

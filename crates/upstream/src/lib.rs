//! Live, recoverable links to MCP servers.

mod attachment;
mod backoff;
mod budget;
mod delivery;
mod flag;
mod folders;
mod handshake;
pub mod http;
mod keeper;
mod link;
mod links;
mod lock;
mod loss;
mod open_error;
mod opener;
mod place;
pub mod process;
mod profile;
mod profiles;
mod seal;
mod seat;
mod server;
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
pub use link::{
    Answer, Asked, Call, CallError, CallOptions, Declares, Greeting, Hello, Incoming, InvalidHello,
    Link, LinkCounts, Listener,
};
pub use links::{Asking, Closed, Held, LinkSettings, LinkStatus, Links};
pub use loss::{Loss, LossReason};
pub use open_error::OpenError;
pub use place::{LinkKey, Place, Scope};
pub use profile::{Profile, Way};
pub use seal::{SealError, SealKey};
pub use server::{
    Endpoint, EraChoice, Expansion, Grace, HeaderAsk, HeaderProvider, Http, Identity, Isolation,
    Launch, Options, ProviderError, Proxy, Resolved, Server, ServerError, ServerProblem, Stdio,
    Timeouts, Transport, Trust, Warm,
};

//! What a session is.
//!
//! MCP servers keep state: an open page, a working directory, a transaction. The protocol has no
//! session any more that could name it. This crate says what a session is instead, and nothing about
//! MCP, sockets or databases: it can be used wherever state belongs to somebody, has a lifetime, and
//! must be found again.
//!
//! | word | type |
//! |---|---|
//! | whose it is | [`Owner`], and inside an owner an [`Agent`] |
//! | what it is called | [`SessionId`] in logs, [`Key`] by name, [`Handle`] by secret |
//! | what is kept of it | [`Record`], [`State`], [`Connection`] |
//! | how long it lives | [`Expiry`], [`EndReason`], [`Ended`] |
//! | who holds it | [`Holder`], [`Lease`], [`Epoch`], [`Tenure`] |
//! | where it is kept | [`Store`], [`MemoryStore`]; for missed events [`Events`], [`MemoryEvents`] |
//! | all sessions of a process | [`Sessions`], [`Session`], [`InUse`] |
//! | the current one of a task | [`scope`] (feature `scope`) |
//!
//! # The life of a session
//!
//! [`Sessions::open`] finds or creates it: the store decides, so one key leads to one session however
//! many ask at once. From then on this process holds it, by a claim under its lease, and finds it in
//! memory. [`InUse`] keeps it from idling out while a call runs. [`Sessions::write_back`] writes times
//! of use back, [`Sessions::sweep`] ends what is due and says so, and what ended leaves a tombstone: its
//! owner is told why, everybody else that there is no such session.
//!
//! ```
//! use std::sync::Arc;
//! use stayput_core::*;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Arc::new(SystemClock);
//! let store = Arc::new(MemoryStore::new(clock.clone()));
//! let sessions = Sessions::start(store, clock, Holder::unreachable(), Settings::default()).await?;
//!
//! let wish = Wish::keyed(Owner::local(), Agent::none(), Key::named("chat-42")?);
//! let opened = sessions.open(&wish).await?;
//! assert_eq!(opened.origin, Origin::Fresh);
//! sessions.state(&opened.session)?.set("page", "https://example.com").await?;
//!
//! let again = sessions.open(&wish).await?;
//! assert_eq!(again.origin, Origin::Kept);
//! let page: Option<String> = sessions.state(&again.session)?.get("page").await?;
//! assert_eq!(page.as_deref(), Some("https://example.com"));
//! # Ok(())
//! # }
//! ```
//!
//! # What is deliberately not here
//!
//! No background task, no runtime, no socket, and no clock that is not given: time is an argument.

mod agent;
mod attachments;
mod clock;
mod counter;
mod digest;
mod events;
mod expiry;
mod fault;
mod handle;
mod key;
mod lease;
mod limits;
mod memory;
mod name;
mod owner;
#[cfg(feature = "promises")]
pub mod promises;
mod quick;
mod random;
mod record;
#[cfg(feature = "scope")]
pub mod scope;
mod session;
mod session_id;
mod sessions;
mod state;
mod store;
mod text;

pub use agent::Agent;
pub use attachments::Attachments;
pub use clock::{Clock, ManualClock, Reading, SystemClock, Timestamp};
pub use counter::{Epoch, Generation, Revision};
pub use digest::Digest;
pub use events::{Event, EventIds, Events, MemoryEvents, Topic, UnknownEvent};
pub use expiry::Expiry;
pub use fault::{Blame, Retry};
pub use handle::{Handle, HandleHash};
pub use key::Key;
pub use lease::{Holder, HolderId, Lease, Tenure};
pub use limits::{SessionLimits, StateLimits};
pub use memory::MemoryStore;
pub use name::{Name, NoName, conversation};
pub use owner::Owner;
pub use quick::{BuildQuick, Quick};
pub use record::{Attachment, EndReason, Ended, Record};
pub use session::{InUse, Session};
pub use session_id::SessionId;
pub use sessions::{OpenError, Opened, Origin, Renewed, Sessions, Settings, Swept, Wish};
pub use state::{State, StateError};
pub use store::{
    CONNECTIONS_PER_SESSION, Connection, Expect, HANDLES_PER_SESSION, Measure, Put, Seen, StateKey,
    Store, StoreError, Value, content_digest,
};
pub use text::InvalidText;

//! Sessions for MCP: owners, handles, records, state, expiry, leases, and the store contract.
//!
//! MCP servers keep state: an open page, a working directory, a transaction. The protocol no longer
//! has a session that could name this state. This crate defines one. It knows nothing about MCP,
//! sockets or databases: it can be used wherever state belongs to a principal, has a lifetime, and
//! must be found again.
//!
//! | question | type |
//! |---|---|
//! | who owns a session | [`Owner`], and inside an owner an [`Agent`] |
//! | what identifies it | [`SessionId`] in logs, [`Key`] by name, [`Handle`] by secret |
//! | what is stored | [`Record`], [`State`], [`Connection`] |
//! | when it ends | [`Expiry`], [`EndReason`], [`SessionEnd`] |
//! | which process holds it | [`Holder`], [`Lease`], [`Epoch`], [`LeaseValidity`] |
//! | where it is stored | [`Store`], [`MemoryStore`]; missed events: [`EventLog`], [`MemoryEventLog`] |
//! | the sessions of a process | [`Sessions`], [`Session`], [`ActiveSession`] |
//! | the current session of a task | [`scope`] (feature `scope`) |
//!
//! # Lifecycle of a session
//!
//! [`Sessions::open`] finds or creates a session. The store decides, so that concurrent calls with
//! one key get one session. From then on this process holds the session by a claim under its lease,
//! and finds it in memory. An [`ActiveSession`] keeps it from expiring while a call runs.
//! [`Sessions::write_back`] saves times of use. [`Sessions::sweep`] ends expired sessions and reports
//! them. An ended session leaves a tombstone: its owner gets the reason, every other caller the same
//! error as for an unknown session.
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
//! let options = OpenOptions::with_key(Owner::local(), Agent::none(), Key::named("chat-42")?);
//! let opened = sessions.open(&options).await?;
//! assert_eq!(opened.origin, Origin::New);
//! sessions.state(&opened.session)?.set("page", "https://example.com").await?;
//!
//! let again = sessions.open(&options).await?;
//! assert_eq!(again.origin, Origin::Existing);
//! let page: Option<String> = sessions.state(&again.session)?.get("page").await?;
//! assert_eq!(page.as_deref(), Some("https://example.com"));
//! # Ok(())
//! # }
//! ```
//!
//! # Files
//!
//! | file or folder | content |
//! |---|---|
//! | `identity/` | owner, agent, session id, key, handle; hashes and random bytes for them |
//! | `record/` | stored record of a session: expiry, attachments, generations |
//! | `store/` | contract of a store, its limits and errors, the store in memory |
//! | `conformance/` | tests of the contract as functions (feature `conformance`) |
//! | `events/` | log of events that a client may have missed |
//! | `state.rs` | typed values of a session |
//! | `lease.rs`, `clock.rs` | lease of a process; time, which is always an argument |
//! | `sessions/` | sessions that this process holds: open, sweep, connections, table |
//! | `scope.rs` | current session of a task (feature `scope`) |
//!
//! # Deliberately absent
//!
//! No background task, no runtime, no socket, and no clock except the one that is passed in.

mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod counter;
mod events;
mod identity;
mod lease;
mod record;
#[cfg(feature = "scope")]
pub mod scope;
mod sessions;
mod state;
mod store;

pub use clock::{Clock, ClockReading, ManualClock, SystemClock, Timestamp};
pub use counter::{Epoch, Generation, Revision};
pub use events::{Event, EventIds, EventLog, MemoryEventLog, Topic, UnknownEvent};
pub use identity::{
    Agent, Digest, Handle, HandleHash, InvalidName, InvalidText, Key, Name, Owner, SessionId,
    content_digest, conversation_key, is_unprintable,
};
pub use lease::{Holder, HolderId, Lease, LeaseValidity};
pub use record::{Attachment, Attachments, EndReason, Expiry, Record, SessionEnd};
pub use sessions::{
    ActiveSession, LeaseRenewal, LostReason, OpenOptions, OpenedSession, Origin, Session,
    SessionOpenError, Sessions, Settings, SweepReport,
};
pub use state::{State, StateError};
pub use store::{
    Blame, Connection, ExpectedRevision, ExpectedValue, LimitKind, MAX_HANDLES_PER_SESSION,
    MemoryStore, Outage, RETAINED_CONNECTIONS_PER_SESSION, Retry, SessionLimits, StateKey,
    StateLimits, StateValue, StateWrite, Store, StoreError,
};

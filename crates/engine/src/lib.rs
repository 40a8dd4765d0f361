//! A session on a link: the code that gateways and agents share.
//!
//! `stayput-core` knows sessions and no servers, `stayput-upstream` knows links and no sessions' records. An
//! [`Engine`] joins the two. It opens the link of a session so that it can be resumed, records which state of a
//! shared link a session has seen, and acknowledges losses.
//!
//! | file | content |
//! |---|---|
//! | `open.rs` | opens a link with the data of the session's record |
//! | `attachment_sink.rs` | stores attachments in the record |
//! | `loss.rs` | generations of shared links, acknowledgement of losses |
//! | `end.rs` | ends sessions, and deletes their sessions on servers |
//! | `sweep.rs` | ends expired sessions and their links |
//! | `leftovers.rs` | links of sessions that another process has, leftovers of killed processes |
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use stayput_core::*;
//! use stayput_engine::Engine;
//! use stayput_process::Processes;
//! use stayput_upstream::{
//!     CallOptions, SessionDirs, ClientInfo, LinkOwner, LinkSettings, Links, SealKey, Server, Stdio,
//! };
//! use tokio::runtime::Handle;
//!
//! # let program = stayput_testkit::program("stayput-testserver");
//! # let command = program.to_str().unwrap();
//! # tokio::runtime::Runtime::new()?.block_on(async move {
//! let clock = Arc::new(SystemClock);
//! let store = Arc::new(MemoryStore::new(clock.clone()));
//! let sessions = Sessions::start(store, clock, Holder::unreachable(), Settings::default()).await?;
//! let processes = Processes::local(Handle::current());
//! let links = Links::new(LinkSettings::new(processes, SessionDirs::temporary()?), Handle::current());
//! let engine = Engine::new(Arc::new(sessions), links, SealKey::generate()?, "process 1");
//!
//! let counter = Server::new("counter", Stdio::new(command).args(["stdio"]))?;
//! let options = OpenOptions::with_key(Owner::local(), Agent::none(), Key::named("chat-42")?);
//! let session = engine.sessions().open(&options).await?.session;
//! let link_owner = LinkOwner::new(Owner::local(), session.id());
//! let client = ClientInfo::named("example", "1.0");
//! let link = engine.open_link((session.session(), &link_owner), &counter, client).await?;
//! let count = link.call("tools/call", Some(r#"{"name":"count"}"#), CallOptions::default());
//! assert!(count.await?.answer().await?.result().is_some());
//!
//! // The record names the link, so that another process knows of it.
//! assert!(session.record().attachments.contains_key("counter"));
//! # drop(link);
//! # engine.links().close(Duration::from_secs(5)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attachment_sink;
mod end;
mod leftovers;
mod loss;
mod open;
mod sweep;

use std::{fmt, sync::Arc};

use stayput_core::Sessions;
use stayput_upstream::{Links, SealKey};

pub use end::END_WAIT;
pub use leftovers::{close_lost_links, sweep_leftovers};
pub use loss::NextState;
pub use sweep::SweptSession;

/// Sessions and links of one process, and what joins them. A clone is the same engine.
#[derive(Clone)]
pub struct Engine {
    sessions: Arc<Sessions>,
    links: Links,
    seal: SealKey,
    /// Random id of this process or hub: state behind a shared link exists only as long as it does.
    instance_id: Arc<str>,
}

impl Engine {
    /// Joins sessions and links. `seal` encrypts attachments at rest. `instance_id` is a random text that no other
    /// process or hub has.
    #[must_use]
    pub fn new(sessions: Arc<Sessions>, links: Links, seal: SealKey, instance_id: &str) -> Self {
        Self { sessions, links, seal, instance_id: instance_id.into() }
    }

    /// Sessions of this process.
    #[must_use]
    pub fn sessions(&self) -> &Arc<Sessions> {
        &self.sessions
    }

    /// Links of this process.
    #[must_use]
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Key that encrypts attachments.
    #[must_use]
    pub fn seal(&self) -> &SealKey {
        &self.seal
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("links", &self.links).finish_non_exhaustive()
    }
}

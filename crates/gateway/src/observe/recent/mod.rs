//! Recent activity for the dashboard: calls of sessions, events and samples, in ring buffers of a fixed size.
//!
//! | file | content | recorded |
//! |---|---|---|
//! | `call_history.rs` | last calls of sessions, and what named the session in each | always |
//! | `recent_events.rs` | last events: opened, resumed, lost, ended, refused, reloaded | always |
//! | `samples.rs` | numbers of the whole gateway over 15 minutes | while a page is open |

pub(crate) mod call_history;
mod inline_name;
mod name_source;
pub(crate) mod recent_events;
pub(crate) mod samples;

use std::sync::Arc;

pub(crate) use self::name_source::{NameClass, NameSource};
use self::{call_history::CallHistory, recent_events::RecentEvents, samples::Samples};

/// Most memory of all ring buffers together.
const MAX_BYTES: usize = 1 << 20;

const _: () = assert!(
    call_history::MAX_BYTES + recent_events::MAX_BYTES + samples::MAX_BYTES <= MAX_BYTES,
    "the ring buffers of the dashboard are larger than their limit"
);

/// Recent activity of the gateway.
#[derive(Debug, Default)]
pub(crate) struct RecentActivity {
    pub(crate) calls: Arc<CallHistory>,
    pub(crate) events: Arc<RecentEvents>,
    pub(crate) samples: Arc<Samples>,
}

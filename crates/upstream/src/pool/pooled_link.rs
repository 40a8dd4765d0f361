//! Guard of a live link, and a weak hint to its pool entry.

use std::{
    borrow::Cow,
    fmt,
    ops::Deref,
    sync::{Arc, Weak},
};

use stayput_core::Generation;
use tracing::{Level, Span};

use crate::{Link, LinkKey, Loss, Server, pool::pool_entry::PoolEntry};

/// Counts one user of a pool entry; drops the count when it goes out of scope. A counted entry is not evicted.
pub(super) struct PinGuard(Arc<PoolEntry>);

impl PinGuard {
    pub(super) fn new(entry: Arc<PoolEntry>) -> Self {
        entry.pin();
        Self(entry)
    }

    /// Wraps an entry whose user count was already incremented.
    pub(super) fn from_counted(entry: Arc<PoolEntry>) -> Self {
        Self(entry)
    }
}

impl Deref for PinGuard {
    type Target = Arc<PoolEntry>;

    fn deref(&self) -> &Arc<PoolEntry> {
        &self.0
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        self.0.unpin();
    }
}

/// Guard of a live link. The pool does not evict the link while a guard exists.
pub struct PooledLink {
    pin: PinGuard,
    link: Link,
    generation: Generation,
    loss: Option<Arc<Loss>>,
}

impl PooledLink {
    pub(super) fn new(
        pin: PinGuard,
        link: Link,
        generation: Generation,
        loss: Option<Arc<Loss>>,
    ) -> Self {
        Self { pin, link, generation, loss }
    }

    /// Generation of the state behind the link. It increases when that state is lost.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Reason why the state of the previous generation is gone, if known.
    #[must_use]
    pub fn loss(&self) -> Option<&Arc<Loss>> {
        self.loss.as_ref()
    }

    /// Monotonic id of the pool entry. State never carries over to an entry with a higher id.
    #[must_use]
    pub fn entry_id(&self) -> u64 {
        self.pin.number
    }

    /// Whether several sessions, and so several clients, may use the link.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.pin.is_shared
    }

    /// Weak reference to the pool entry, to find the link again without a lookup.
    #[must_use]
    pub fn hint(&self) -> LinkHint {
        LinkHint(Arc::downgrade(&self.pin))
    }

    /// Key of the link in the pool.
    #[must_use]
    pub fn key(&self) -> &LinkKey {
        &self.pin.key
    }

    /// Span `call` of a call on this link, inside of a span `link`. Both have names only. If no subscriber listens to
    /// them, this costs one comparison.
    #[must_use]
    pub fn call_span<'a>(&self, method: &str, tool: impl FnOnce() -> Option<Cow<'a, str>>) -> Span {
        if !tracing::enabled!(Level::DEBUG) {
            return Span::none();
        }
        let (server, generation, era) =
            (self.key().server(), self.generation, self.link.era().name());
        let link = tracing::debug_span!("link", server, %generation, era);
        tracing::debug_span!(parent: &link, "call", method, tool = tool().as_deref())
    }
}

impl Deref for PooledLink {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

impl fmt::Debug for PooledLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PooledLink({:?}, generation {})", self.link, self.generation)
    }
}

/// Weak reference to a pool entry. Skips the lookup when the same session calls the same server again.
#[derive(Clone, Default)]
pub struct LinkHint(Weak<PoolEntry>);

impl LinkHint {
    /// Returns the live link of the entry, if it leads to `server` or a copy of it. On `None`, use
    /// [`Links::find`](crate::Links::find).
    #[must_use]
    pub fn find(&self, server: &Server) -> Option<PooledLink> {
        let entry = self.0.upgrade()?;
        if entry.server.is(server) && !entry.is_out() { entry.hold() } else { None }
    }
}

impl fmt::Debug for LinkHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkHint({:?})", self.0.upgrade())
    }
}

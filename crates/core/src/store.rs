//! Contract of a store.

mod error;
mod limits;
mod memory;

use std::{fmt, time::Duration};

use async_trait::async_trait;

use crate::{
    Agent, Expiry, Generation, HandleHash, Holder, Key, Lease, Owner, Record, Revision, SessionId,
    Timestamp,
};

pub use error::{Blame, LimitKind, Outage, Retry, StoreError};
pub use limits::{SessionLimits, StateLimits};
pub use memory::MemoryStore;

/// Storage of sessions between calls. Each method is one atomic operation.
///
/// - **Time is an argument.** A store compares against the `now` it is given. Only leases are
///   judged by the store's own clock, because several processes must agree on it. A database's key
///   expiry may collect garbage; it never decides.
/// - **Writes are fenced.** `by` is the writer's lease. A write to a session that another lease has
///   claimed fails with [`StoreError::NotHolder`]. A session without a claim accepts every writer;
///   revisions detect conflicts.
/// - **An error does not mean that nothing happened.** After [`StoreError::Unavailable`] a write
///   may have happened. A caller repeats it with the revision it has read.
///
/// The contract is tested by the functions in [`conformance`](crate::conformance) (feature
/// `conformance`). A store of your own runs them all in one line.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    // ── records ─────────────────────────────────────────────────────────────────────────────────

    /// Adds a live record and claims it for `record.holder` if that is set. Stores its connection
    /// in the same step, if there is one: both or neither.
    ///
    /// If the last session with this key has ended, the new one gets a higher generation. (After
    /// `remove` of that session, the store may or may not consider older ones.) Returns the stored
    /// generation.
    ///
    /// # Errors
    /// [`StoreError::Taken`] if a live session has the key (or the id), with that session.
    async fn insert(
        &self,
        record: &Record,
        connection: Option<&Connection>,
    ) -> Result<Generation, StoreError>;

    /// Reads a record, live or tombstone.
    async fn load(&self, id: SessionId) -> Result<Option<Record>, StoreError>;

    /// Reads the live record with this key.
    async fn find_by_key(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<Record>, StoreError>;

    /// Replaces a record if it still has the `expected` revision, and returns the new revision.
    /// Never creates a record.
    ///
    /// Ending a session (`record.ended` is set) frees its key, drops its state and releases its
    /// claim. Reviving one takes the key back and claims it for `by`. Owner, agent, key and id
    /// never change, and `holder` does not change in any other way.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if it changed since, [`StoreError::Missing`] if it does not exist,
    /// [`StoreError::NotHolder`], or [`StoreError::Taken`] if another session has the key now.
    async fn replace(
        &self,
        record: &Record,
        expected: ExpectedRevision,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError>;

    /// Updates the times of last use of live sessions and returns how many were updated. Times
    /// never go back.
    ///
    /// Sessions that have ended, do not exist or are claimed by another lease are skipped.
    /// Revisions do not change, so that a touch never makes a replace fail.
    async fn touch(
        &self,
        used: &[(SessionId, Timestamp)],
        by: Option<Lease>,
    ) -> Result<u64, StoreError>;

    /// Removes a session with its handles, connections and state. A missing session is not an
    /// error. Its events are in the [`EventLog`](crate::EventLog) and are removed there.
    ///
    /// # Errors
    /// [`StoreError::NotHolder`].
    async fn remove(&self, id: SessionId, by: Option<Lease>) -> Result<(), StoreError>;

    /// Reads up to `limit` live records of one owner or of all, in the order of their ids, starting
    /// after `after`. A page with fewer records is the last one.
    async fn list(
        &self,
        owner: Option<&Owner>,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// Reads up to `limit` live records with a deadline at or before `now`, in the order of
    /// deadline and id, starting after `after`. An empty page is the last one.
    ///
    /// A record that cannot be decoded is skipped, so that it does not keep the others from ending.
    async fn list_due(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, SessionId)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// Removes up to `limit` tombstones of sessions that ended before `ended_before` and returns
    /// how many.
    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError>;

    // ── handles ─────────────────────────────────────────────────────────────────────────────────

    /// Adds a handle to the session. Above [`MAX_HANDLES_PER_SESSION`] the oldest one is removed;
    /// one that is added again becomes the newest.
    ///
    /// # Errors
    /// [`StoreError::Missing`] or [`StoreError::NotHolder`].
    async fn add_handle(
        &self,
        id: SessionId,
        hash: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError>;

    /// Reads the record of the session with this handle, live or tombstone.
    async fn find_by_handle(&self, hash: HandleHash) -> Result<Option<Record>, StoreError>;

    // ── connections ─────────────────────────────────────────────────────────────────────────────

    /// Stores a new or changed connection until it or its session is removed. A changed one may
    /// lead to another session.
    ///
    /// Connections of that session that were last used before `stale_before` are removed, except
    /// the [`RETAINED_CONNECTIONS_PER_SESSION`] most recently used ones.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if the session does not exist as live record or tombstone, or
    /// [`StoreError::NotHolder`].
    async fn put_connection(
        &self,
        connection: &Connection,
        stale_before: Timestamp,
        by: Option<Lease>,
    ) -> Result<(), StoreError>;

    /// Reads a connection.
    async fn load_connection(&self, name: HandleHash) -> Result<Option<Connection>, StoreError>;

    /// Updates the times of last use of connections and returns how many were updated. Times never
    /// go back.
    ///
    /// Connections that do not exist, or whose session another lease has claimed, are skipped.
    async fn touch_connections(
        &self,
        used: &[(HandleHash, Timestamp)],
        by: Option<Lease>,
    ) -> Result<u64, StoreError>;

    /// Removes a connection. A missing one is not an error.
    ///
    /// # Errors
    /// [`StoreError::NotHolder`].
    async fn remove_connection(
        &self,
        name: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError>;

    // ── state ───────────────────────────────────────────────────────────────────────────────────

    /// Reads one value of a session's state.
    async fn load_state(&self, id: SessionId, key: &str) -> Result<Option<StateValue>, StoreError>;

    /// Lists the keys of a session's state in order, with revisions and sizes.
    async fn list_state_keys(&self, id: SessionId) -> Result<Vec<StateKey>, StoreError>;

    /// Writes one value if the current one is as expected, and returns its revision.
    ///
    /// Revisions of one key only grow, also across a removal. Writes to different keys do not
    /// conflict.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the current value is another one, [`StoreError::Missing`] if the
    /// session does not exist or has ended, [`StoreError::TooLarge`] above a limit,
    /// [`StoreError::NotHolder`].
    async fn put_state(
        &self,
        id: SessionId,
        write: StateWrite<'_>,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError>;

    /// Removes one value if it is as expected. With [`ExpectedValue::Any`] it may be absent.
    ///
    /// # Errors
    /// [`StoreError::Stale`], [`StoreError::Missing`] or [`StoreError::NotHolder`].
    async fn remove_state(
        &self,
        id: SessionId,
        key: &str,
        expected: ExpectedValue,
        by: Option<Lease>,
    ) -> Result<(), StoreError>;

    // ── leases ──────────────────────────────────────────────────────────────────────────────────

    /// Grants `holder` a lease over `ttl`, with an epoch above all earlier ones.
    async fn acquire_lease(&self, holder: &Holder, ttl: Duration) -> Result<Lease, StoreError>;

    /// Extends a lease to `ttl` from now.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if it expired or was released. An expired lease never becomes
    /// valid again, so that a process that saw its expiry can rely on it.
    async fn renew_lease(&self, lease: Lease, ttl: Duration) -> Result<(), StoreError>;

    /// Releases a lease. All sessions that it claimed can be claimed by others at once.
    async fn release_lease(&self, lease: Lease) -> Result<(), StoreError>;

    /// Returns the holder of this lease if the lease is valid.
    async fn lease_holder(&self, lease: Lease) -> Result<Option<Holder>, StoreError>;

    /// Claims a live session for `lease`, if it has no claim or only that of an expired lease. A
    /// repeated claim is not an error. Returns the claimed record.
    ///
    /// The store does not check whether `lease` itself is valid. Its holder does, see
    /// [`LeaseValidity`](crate::LeaseValidity).
    ///
    /// # Errors
    /// [`StoreError::HeldBy`] with the live holder, or [`StoreError::Missing`] if the session does
    /// not exist or has ended.
    async fn claim(&self, id: SessionId, lease: Lease) -> Result<Record, StoreError>;

    /// Releases a claim if `lease` has it.
    async fn release_claim(&self, id: SessionId, lease: Lease) -> Result<(), StoreError>;
}

/// Maximum number of handles of a session. Every re-issue adds one, so the number needs a bound.
pub const MAX_HANDLES_PER_SESSION: usize = 32;

/// Number of connections of a session that are kept however long they were unused. Many clients
/// never disconnect cleanly, and never reconnect on their own.
pub const RETAINED_CONNECTIONS_PER_SESSION: usize = 64;

/// Revision that a stored record must have for a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedRevision {
    /// Revision that the writer has read.
    pub revision: Revision,
    /// Time of last use, if it must not have changed either. A writer that ends an idle
    /// session must not end one that a client has just used again.
    pub last_used: Option<Timestamp>,
}

impl ExpectedRevision {
    /// Expects the revision of `record`. The session may have been used since.
    #[must_use]
    pub fn revision(record: &Record) -> Self {
        Self { revision: record.revision, last_used: None }
    }

    /// Expects the revision of `record`, and no use since.
    #[must_use]
    pub fn unused(record: &Record) -> Self {
        Self { revision: record.revision, last_used: Some(record.last_used) }
    }
}

/// Stored connection of a client.
#[derive(Clone, PartialEq, Eq)]
pub struct Connection {
    /// Hash of its secret name and its owner.
    pub name: HandleHash,
    /// Session of the connection.
    pub session: SessionId,
    /// Time of last use, or a little earlier.
    pub last_used: Timestamp,
    /// Protocol state that only the creator of the connection reads.
    pub body: Vec<u8>,
}

impl Connection {
    /// Interval at which the use of a connection is written, while it is used.
    pub const TOUCH_INTERVAL: Duration = Duration::from_secs(60);

    /// Returns the time before which a connection counts as stale: the idle time of its session and
    /// two intervals of [`Connection::TOUCH_INTERVAL`] ago, for uses that are not written yet.
    #[must_use]
    pub fn stale_before(now: Timestamp, expiry: Expiry) -> Timestamp {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        now.before(expiry.idle.unwrap_or(DAY).saturating_add(2 * Self::TOUCH_INTERVAL))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({:?} to {}, {} bytes)", self.name, self.session, self.body.len())
    }
}

/// Value of a session's state.
#[derive(Clone, PartialEq, Eq)]
pub struct StateValue {
    /// Revision of the value.
    pub revision: Revision,
    /// Content of the value.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for StateValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateValue(revision {}, {} bytes)", self.revision, self.bytes.len())
    }
}

/// Key of a session's state, with revision and size of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateKey {
    /// The key.
    pub key: String,
    /// Revision of the value.
    pub revision: Revision,
    /// Size of the value in bytes.
    pub size: usize,
}

/// Value to be written.
#[derive(Clone, Copy)]
pub struct StateWrite<'a> {
    /// Key of the value.
    pub key: &'a str,
    /// Content of the value.
    pub bytes: &'a [u8],
    /// Required current value.
    pub expected: ExpectedValue,
    /// Limits on the state after the write.
    pub limits: StateLimits,
}

impl StateWrite<'_> {
    /// Checks the limits, given size and number of all other values.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] with the limit and the size.
    pub fn check(&self, others: usize, count: usize) -> Result<(), StoreError> {
        let sizes = [
            (LimitKind::Key, self.limits.key, self.key.len()),
            (LimitKind::Value, self.limits.value, self.bytes.len()),
            (LimitKind::Session, self.limits.session, self.size().saturating_add(others)),
            (LimitKind::Keys, self.limits.keys, count.saturating_add(1)),
        ];
        match sizes.into_iter().find(|(_, limit, size)| size > limit) {
            Some((kind, limit, size)) => Err(StoreError::TooLarge { kind, limit, size }),
            None => Ok(()),
        }
    }

    /// Returns the size that counts against the limit of a session: key and content.
    #[must_use]
    pub fn size(&self) -> usize {
        self.key.len().saturating_add(self.bytes.len())
    }
}

impl fmt::Debug for StateWrite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateWrite({:?}, {} bytes, {:?})", self.key, self.bytes.len(), self.expected)
    }
}

/// Condition on the current value of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedValue {
    /// Any value, or none.
    Any,
    /// No value.
    Absent,
    /// Value of this revision.
    At(Revision),
}

impl ExpectedValue {
    /// Returns whether `found` meets the condition.
    #[must_use]
    pub fn is_met_by(&self, found: Option<Revision>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => found.is_none(),
            Self::At(revision) => found == Some(*revision),
        }
    }
}

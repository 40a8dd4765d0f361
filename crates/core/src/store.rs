//! Where sessions live between calls: the contract every store keeps.

use std::{error::Error, fmt, time::Duration};

use async_trait::async_trait;

use crate::{
    Agent, Blame, Digest, Expiry, Generation, HandleHash, Holder, Key, Lease, Owner, Record, Retry,
    Revision, SessionId, StateLimits, Timestamp,
};

/// Where sessions live between calls. Each method is one atomic promise.
///
/// - **Time is an argument.** A store compares against the `now` it is given. Leases alone are
///   judged by the store's own clock, because several processes must agree on it. A database's
///   expiry of keys may collect garbage; it never decides.
/// - **Writes are fenced.** `by` is the writer's lease. A write to a session that another lease has
///   claimed fails with [`StoreError::NotHolder`]; to a session that nobody has claimed, everybody
///   may write, and revisions keep writers apart.
/// - **An error is not a no.** After [`StoreError::Unavailable`] a write may or may not have
///   happened. Whoever repeats it does so with the revision it has seen.
///
/// The promises are functions in [`promises`](crate::promises) (feature `promises`); a store of your
/// own runs them all in one line.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    // ── records ─────────────────────────────────────────────────────────────────────────────────

    /// Adds a new, live record and claims it for `record.holder` if that is set. With it, the connection is kept
    /// whose session it is, if there is one: both or neither.
    ///
    /// If the session that had this key last is over, the new one inherits: it gets a generation
    /// above that one's. (Once that one is forgotten by `remove`, whether older ones still count is up
    /// to the store.) Returns the generation that was stored.
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

    /// Reads the live record that has this key.
    async fn find(
        &self,
        owner: &Owner,
        agent: &Agent,
        key: &Key,
    ) -> Result<Option<Record>, StoreError>;

    /// Replaces a record if it is still as `seen`; returns its new revision. Never creates one.
    ///
    /// Ending a session (`record.ended` is set) frees its key, drops its state and releases it.
    /// Reviving one takes the key back and claims it for `by`. Owner, agent, key and id are never
    /// changed, and `holder` is not changed in any other way.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if it changed since, [`StoreError::Missing`] if it is gone,
    /// [`StoreError::NotHolder`], or [`StoreError::Taken`] if another session has the key meanwhile.
    async fn replace(
        &self,
        record: &Record,
        seen: Seen,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError>;

    /// Notes later times of use of live sessions; returns how many it noted. Times never go back.
    ///
    /// Sessions that are over, gone or claimed by another lease are passed over. Revisions stay, so
    /// a touch never spoils anybody's replace.
    async fn touch(
        &self,
        used: &[(SessionId, Timestamp)],
        by: Option<Lease>,
    ) -> Result<u64, StoreError>;

    /// Forgets a session with its handles, connections and state. Forgetting twice is fine. What was
    /// said to its clients is in [`Events`](crate::Events), which forgets by a verb of its own.
    ///
    /// # Errors
    /// [`StoreError::NotHolder`].
    async fn remove(&self, id: SessionId, by: Option<Lease>) -> Result<(), StoreError>;

    /// Reads up to `limit` live records in the order of their ids, beginning after `after`; of one
    /// owner, or of all. Records come whole, so a page that is not full is the last one.
    async fn list(
        &self,
        owner: Option<&Owner>,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// Reads up to `limit` live records whose deadline is at or before `now`, in the order of deadline
    /// and id, beginning after that of `after`. An empty page is the last one.
    ///
    /// A record that cannot be read is passed over, so that it does not keep the others from ending.
    async fn due(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, SessionId)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// Forgets up to `limit` tombstones of sessions that ended before `ended_before`; returns how many.
    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError>;

    // ── handles ─────────────────────────────────────────────────────────────────────────────────

    /// Lets `hash` name the session. Of more than [`HANDLES_PER_SESSION`] the oldest is forgotten; one
    /// that is added again is the youngest.
    ///
    /// # Errors
    /// [`StoreError::Missing`] or [`StoreError::NotHolder`].
    async fn add_handle(
        &self,
        id: SessionId,
        hash: HandleHash,
        by: Option<Lease>,
    ) -> Result<(), StoreError>;

    /// Reads the record that `hash` names, live or tombstone.
    async fn find_handle(&self, hash: HandleHash) -> Result<Option<Record>, StoreError>;

    // ── connections ─────────────────────────────────────────────────────────────────────────────

    /// Keeps a connection, new or changed, until it or the session it leads to is removed. It may lead
    /// to another session than before.
    ///
    /// Of the connections of that session, all that were last used before `unused` are forgotten, but for the
    /// [`CONNECTIONS_PER_SESSION`] that were used last.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is no such session, live or tombstone, or
    /// [`StoreError::NotHolder`].
    async fn put_connection(
        &self,
        connection: &Connection,
        unused: Timestamp,
        by: Option<Lease>,
    ) -> Result<(), StoreError>;

    /// Reads a connection.
    async fn connection(&self, name: HandleHash) -> Result<Option<Connection>, StoreError>;

    /// Notes later times of use of connections; returns how many it noted. Times never go back.
    ///
    /// Connections that are gone, or lead to a session that another lease has claimed, are passed over.
    async fn touch_connections(
        &self,
        used: &[(HandleHash, Timestamp)],
        by: Option<Lease>,
    ) -> Result<u64, StoreError>;

    /// Forgets a connection. Forgetting twice is fine.
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
    async fn state(&self, id: SessionId, key: &str) -> Result<Option<Value>, StoreError>;

    /// Reads the keys of a session's state in order, with revisions and sizes.
    async fn state_keys(&self, id: SessionId) -> Result<Vec<StateKey>, StoreError>;

    /// Writes one value if what is there is as expected; returns its revision.
    ///
    /// Revisions of one key only grow, also across a removal. Keys do not disturb each other.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if something else is there, [`StoreError::Missing`] if the session is
    /// over or gone, [`StoreError::TooLarge`] past a limit, [`StoreError::NotHolder`].
    async fn put_state(
        &self,
        id: SessionId,
        put: Put<'_>,
        by: Option<Lease>,
    ) -> Result<Revision, StoreError>;

    /// Removes one value if what is there is as expected. With [`Expect::Any`] it may be absent.
    ///
    /// # Errors
    /// [`StoreError::Stale`], [`StoreError::Missing`] or [`StoreError::NotHolder`].
    async fn remove_state(
        &self,
        id: SessionId,
        key: &str,
        expect: Expect,
        by: Option<Lease>,
    ) -> Result<(), StoreError>;

    // ── contents ────────────────────────────────────────────────────────────────────────────────

    /// Keeps `content` once under its digest, however often it is put.
    async fn put_content(&self, content: &[u8]) -> Result<Digest, StoreError>;

    /// Reads what was kept under a digest.
    async fn content(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError>;

    // ── leases ──────────────────────────────────────────────────────────────────────────────────

    /// Gives `holder` a lease over `ttl`, with an epoch above all that were given before.
    async fn hold(&self, holder: &Holder, ttl: Duration) -> Result<Lease, StoreError>;

    /// Lets a lease run for `ttl` from now.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if it ran out or was given up. A dead lease never comes back, so
    /// whoever saw it dead can rely on it.
    async fn renew(&self, lease: Lease, ttl: Duration) -> Result<(), StoreError>;

    /// Gives a lease up: at once, all that it claimed can be claimed by others.
    async fn leave(&self, lease: Lease) -> Result<(), StoreError>;

    /// Who has this lease, if it is alive.
    async fn holder(&self, lease: Lease) -> Result<Option<Holder>, StoreError>;

    /// Claims a live session for `lease`, if nobody or only a dead lease has it. Claiming what one has
    /// is fine. Returns the record, as it is claimed.
    ///
    /// Whether `lease` itself is alive is for its holder to know: see [`Tenure`](crate::Tenure).
    ///
    /// # Errors
    /// [`StoreError::HeldBy`] with the live holder, or [`StoreError::Missing`] if it is over or gone.
    async fn claim(&self, id: SessionId, lease: Lease) -> Result<Record, StoreError>;

    /// Gives a claim up, if `lease` has it.
    async fn release(&self, id: SessionId, lease: Lease) -> Result<(), StoreError>;
}

/// How many handles a session keeps. Every re-issue adds one, so there must be an end to it.
pub const HANDLES_PER_SESSION: usize = 32;

/// How many connections of a session are kept however long nobody used them. Many clients never say goodbye,
/// and never connect anew by themselves.
pub const CONNECTIONS_PER_SESSION: usize = 64;

/// What the writer of a record has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The revision it has read.
    pub revision: Revision,
    /// If set, the session must not have been used since this moment either: whoever ends a session
    /// for idling must not end one that somebody just came back to.
    pub last_used: Option<Timestamp>,
}

impl Seen {
    /// Has read this revision; later times of use do not matter.
    #[must_use]
    pub fn revision(record: &Record) -> Self {
        Self { revision: record.revision, last_used: None }
    }

    /// Has read this record, and it must not have been used since.
    #[must_use]
    pub fn unused(record: &Record) -> Self {
        Self { revision: record.revision, last_used: Some(record.last_used) }
    }
}

/// What a client's connection is, beside the session it leads to.
#[derive(Clone, PartialEq, Eq)]
pub struct Connection {
    /// The hash of its secret name and its owner.
    pub name: HandleHash,
    /// The session it leads to.
    pub session: SessionId,
    /// When it was last used, or a little earlier.
    pub used: Timestamp,
    /// Protocol state that only the maker of the connection reads.
    pub body: Vec<u8>,
}

impl Connection {
    /// How often it is to be noted that a connection is used, while it is.
    pub const NOTED: Duration = Duration::from_secs(60);

    /// Since when a connection was used whose client can be expected to come back, to a session that ends by
    /// this rule: for as long as that may idle, and what may not be noted yet.
    #[must_use]
    pub fn unused(now: Timestamp, expiry: Expiry) -> Timestamp {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        now.before(expiry.idle.unwrap_or(DAY).saturating_add(2 * Self::NOTED))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({:?} to {}, {} bytes)", self.name, self.session, self.body.len())
    }
}

/// One value of a session's state.
#[derive(Clone, PartialEq, Eq)]
pub struct Value {
    /// Which change made it.
    pub revision: Revision,
    /// What it is.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value(revision {}, {} bytes)", self.revision, self.bytes.len())
    }
}

/// A key of a session's state, with what can be said of its value without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateKey {
    /// The key.
    pub key: String,
    /// The revision of the value.
    pub revision: Revision,
    /// The bytes of the value.
    pub size: usize,
}

/// A value to be written.
#[derive(Clone, Copy)]
pub struct Put<'a> {
    /// Under which key.
    pub key: &'a str,
    /// The value.
    pub bytes: &'a [u8],
    /// What must be there now.
    pub expect: Expect,
    /// How large the state may become.
    pub limits: StateLimits,
}

impl Put<'_> {
    /// Checks the limits, given the bytes of all other values and how many there are.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`], which names the limit and the size.
    pub fn check(&self, others: usize, count: usize) -> Result<(), StoreError> {
        let sizes = [
            (Measure::Key, self.limits.key, self.key.len()),
            (Measure::Value, self.limits.value, self.bytes.len()),
            (Measure::Session, self.limits.session, self.size().saturating_add(others)),
            (Measure::Keys, self.limits.keys, count.saturating_add(1)),
        ];
        match sizes.into_iter().find(|(_, limit, size)| size > limit) {
            Some((measure, limit, size)) => Err(StoreError::TooLarge { measure, limit, size }),
            None => Ok(()),
        }
    }

    /// What this value counts for in the size of a session: its key and its bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.key.len().saturating_add(self.bytes.len())
    }
}

impl fmt::Debug for Put<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Put({:?}, {} bytes, {:?})", self.key, self.bytes.len(), self.expect)
    }
}

/// What must be there for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Anything or nothing.
    Any,
    /// Nothing.
    Absent,
    /// The value of this revision.
    At(Revision),
}

impl Expect {
    /// Whether `found` is what is expected.
    #[must_use]
    pub fn met_by(&self, found: Option<Revision>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => found.is_none(),
            Self::At(revision) => found == Some(*revision),
        }
    }
}

/// What a limit is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Measure {
    /// The name of one value.
    Key,
    /// One value.
    Value,
    /// All values of a session together, with their keys.
    Session,
    /// The number of values of a session.
    Keys,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "bytes in a key of the session's state",
            Self::Value => "bytes in a value of the session's state",
            Self::Session => "bytes in the session's state",
            Self::Keys => "values in the session's state",
        })
    }
}

/// Why a store did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A live session has this key. Use that one, or take another key.
    #[error("the key is taken by session {by}")]
    Taken {
        /// The session that has it.
        by: SessionId,
    },
    /// There is no such session, or it is over.
    #[error("there is no such session")]
    Missing,
    /// Somebody else wrote first. Read again, then try again.
    #[error("it was changed since it was read")]
    Stale,
    /// The writer's lease does not hold this session. Stop using it here.
    #[error("this process does not hold the session any more")]
    NotHolder,
    /// Another process holds the session. Forward to it.
    #[error("the session is held by {}", .holder.id)]
    HeldBy {
        /// Who holds it.
        holder: Holder,
    },
    /// The lease ran out or was given up. Take a new one.
    #[error("the lease ran out")]
    LeaseLost,
    /// The state would grow past a limit. Store less, or raise the limit.
    #[error("{size} {measure}; at most {limit} are allowed")]
    TooLarge {
        /// What the limit is on.
        measure: Measure,
        /// The limit.
        limit: usize,
        /// What it would have been.
        size: usize,
    },
    /// The database did not answer, or not in time. Whether a write happened is unknown.
    #[error("the {store} store does not answer")]
    Unavailable {
        /// Which kind of store.
        store: &'static str,
        /// What the driver said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The database answered with something that this version did not write.
    #[error("the {store} store holds {what} that cannot be read")]
    Corrupt {
        /// Which kind of store.
        store: &'static str,
        /// What it was.
        what: &'static str,
        /// What is wrong with it.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl StoreError {
    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Taken { .. } | Self::Missing | Self::TooLarge { .. } => Blame::Caller,
            Self::Stale | Self::NotHolder | Self::HeldBy { .. } | Self::LeaseLost => Blame::Here,
            Self::Unavailable { .. } | Self::Corrupt { .. } => Blame::Store,
        }
    }

    /// Whether it helps to try again.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Stale | Self::Taken { .. } => Retry::AfterReload,
            Self::Unavailable { .. } => Retry::Later,
            _ => Retry::Never,
        }
    }
}

/// The digest under which a content is kept.
#[must_use]
pub fn content_digest(content: &[u8]) -> Digest {
    Digest::of("content", &[content])
}

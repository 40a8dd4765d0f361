//! Errors of a store.

use std::{error::Error, fmt};

use crate::{Holder, SessionId};

/// Party whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The caller made an invalid request.
    Caller,
    /// This process, or the state it holds.
    Here,
    /// The database.
    Store,
}

/// Whether a retry can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Every attempt fails in the same way.
    Never,
    /// Read the changed item again, then retry at once.
    AfterReload,
    /// The same call may succeed after a while.
    Later,
}

/// Kind of a limit on the state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitKind {
    /// Length of one key.
    Key,
    /// Length of one value.
    Value,
    /// Length of all keys and values of a session together.
    Session,
    /// Number of values of a session.
    Keys,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "bytes in a key of the session's state",
            Self::Value => "bytes in a value of the session's state",
            Self::Session => "bytes in the session's state",
            Self::Keys => "values in the session's state",
        })
    }
}

/// Known reason why a database cannot be used.
///
/// As the source of [`StoreError::Unavailable`] it is part of the message, because it names no host
/// and no file. Errors of drivers may do so, and are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Outage {
    /// There is no space for a write.
    #[error("its disk is full")]
    DiskFull,
    /// The operating system refuses to read or write the file.
    #[error("its disk fails, or a quota is used up")]
    DiskFailed,
    /// The file is gone. Writes to it would be lost.
    #[error("its database file was deleted")]
    FileDeleted,
    /// Another file has its name. Writes to the first one would be lost.
    #[error("its database file was replaced by another one")]
    FileReplaced,
    /// The file is too short for a database.
    #[error("its database file was cut short")]
    FileCut,
    /// The file cannot be opened any more.
    #[error("its database file cannot be read or written any more")]
    FileUnreadable,
}

/// Returns the end of a message about a database that does not answer.
fn known_reason(source: &(dyn Error + Send + Sync + 'static)) -> String {
    source.downcast_ref().map(|outage: &Outage| format!(": {outage}")).unwrap_or_default()
}

/// Error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A live session has this key. Use that session, or another key.
    #[error("the key is taken by session {by}")]
    Taken {
        /// Session with this key.
        by: SessionId,
    },
    /// The session does not exist or has ended.
    #[error("there is no such session")]
    Missing,
    /// Another writer was faster. Read again, then retry.
    #[error("it was changed since it was read")]
    Stale,
    /// The writer's lease does not hold this session. Stop using it in this process.
    #[error("this process does not hold the session any more")]
    NotHolder,
    /// Another process holds the session. Forward to it.
    #[error("the session is held by {}", .holder.id)]
    HeldBy {
        /// Process that holds the session.
        holder: Holder,
    },
    /// The lease expired or was released. Acquire a new one.
    #[error("the lease ran out")]
    LeaseLost,
    /// The state would exceed a limit. Store less, or raise the limit.
    #[error("{size} {kind}; at most {limit} are allowed")]
    TooLarge {
        /// Kind of the limit.
        kind: LimitKind,
        /// The limit.
        limit: usize,
        /// Size that was requested.
        size: usize,
    },
    /// The database did not answer, or not in time. Whether a write happened is unknown.
    #[error("the {store} store does not answer{}", known_reason(.source.as_ref()))]
    Unavailable {
        /// Kind of store.
        store: &'static str,
        /// Error of the driver, or an [`Outage`].
        source: Box<dyn Error + Send + Sync>,
    },
    /// The database returned data that this version did not write.
    #[error("the {store} store holds {what} that cannot be read")]
    Corrupt {
        /// Kind of store.
        store: &'static str,
        /// Kind of data.
        what: &'static str,
        /// Error of the decoder.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl StoreError {
    /// Returns whose fault the error is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Taken { .. } | Self::Missing | Self::TooLarge { .. } => Blame::Caller,
            Self::Stale | Self::NotHolder | Self::HeldBy { .. } | Self::LeaseLost => Blame::Here,
            Self::Unavailable { .. } | Self::Corrupt { .. } => Blame::Store,
        }
    }

    /// Returns whether a retry can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Stale | Self::Taken { .. } => Retry::AfterReload,
            Self::Unavailable { .. } => Retry::Later,
            _ => Retry::Never,
        }
    }
}

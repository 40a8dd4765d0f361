//! Error of opening or using a session.

use std::time::Duration;

use crate::{Blame, EndReason, Holder, Record, Retry, StoreError};

/// Error of opening or using a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionOpenError {
    /// This owner has no such session. An unknown session and a foreign one give the same error.
    #[error("there is no such session; open a new one")]
    Unknown,
    /// The session has ended, and its owner may know why.
    #[error("{}", describe_end(.0))]
    Ended(Box<Record>),
    /// Another process holds the session. Forward the request to it.
    #[error("the session is held by {}", .holder.id)]
    HeldElsewhere {
        /// Process that holds the session.
        holder: Holder,
    },
    /// The owner is at its limit of sessions, and none of them can be evicted.
    #[error(
        "the owner has {limit} live sessions, as many as are allowed; end one or try again later"
    )]
    AtCapacity {
        /// The limit.
        limit: usize,
    },
    /// This process has lost its lease and may not use its sessions until it has renewed it.
    #[error("this process lost its lease on the store; try again in a moment")]
    LeaseLost,
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SessionOpenError {
    /// Returns whose fault the error is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Unknown | Self::Ended(_) | Self::AtCapacity { .. } => Blame::Caller,
            Self::HeldElsewhere { .. } | Self::LeaseLost => Blame::Here,
            Self::Store(error) => error.blame(),
        }
    }

    /// Returns whether a retry can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unknown | Self::Ended(_) => Retry::Never,
            // A dead holder keeps its claim until its lease expires.
            Self::HeldElsewhere { .. } | Self::AtCapacity { .. } | Self::LeaseLost => Retry::Later,
            Self::Store(error) => error.retry(),
        }
    }
}

/// Describes the end of a session for its owner.
fn describe_end(record: &Record) -> String {
    let span = |span: Option<Duration>| match span.unwrap_or_default().as_secs() {
        secs if secs >= 60 && secs % 60 == 0 => format!("{} min", secs / 60),
        secs => format!("{secs} s"),
    };
    let why = match record.ended.map(|ended| ended.reason) {
        Some(EndReason::Idle) => format!("expired after {} idle", span(record.expiry.idle)),
        Some(EndReason::Age) => {
            format!("expired at its full age of {}", span(record.expiry.absolute))
        }
        Some(EndReason::Evicted) => "made room for another one at a limit".to_owned(),
        _ => "was ended".to_owned(),
    };
    format!("session {} {why}; its state is gone, open a new one", record.id)
}

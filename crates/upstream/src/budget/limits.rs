//! Limits of the budget.

use std::time::Duration;

use stayput_core::Owner;

/// Limits on links and child processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Child processes in total. Defaults to 128: a Node or Python process takes 50 to 100 MB.
    pub processes: usize,
    /// Links in total, processes included. Defaults to 20,000: an idle HTTP link has no socket.
    pub links: usize,
    /// Memory of all children together, in bytes. Above it, a new process is admitted only after another one
    /// has ended. Defaults to no limit.
    pub memory: Option<u64>,
    /// Limits of each owner.
    pub per_owner: PerOwner,
    /// Longest time that a request waits for a permit. Defaults to 30 seconds: most clients give up a call after 60.
    pub wait: Duration,
}

/// Limits of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerOwner {
    /// Child processes. Defaults to 64.
    pub processes: usize,
    /// Links, processes included. Defaults to 2,000.
    pub links: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            processes: 128,
            links: 20_000,
            memory: None,
            per_owner: PerOwner::default(),
            wait: Duration::from_secs(30),
        }
    }
}

impl Default for PerOwner {
    fn default() -> Self {
        Self { processes: 64, links: 2_000 }
    }
}

/// Cost of a link, in addition to the link itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Whether the link has a child process.
    pub process: bool,
}

/// Limit that blocks one more link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Child processes of one owner.
    OwnerProcesses(usize),
    /// Links of one owner.
    OwnerLinks(usize),
    /// Child processes in total.
    Processes(usize),
    /// Links in total.
    Links(usize),
    /// Memory of all children, in bytes.
    Memory(u64),
}

impl Obstacle {
    /// Whether the limit is that of one owner.
    pub(super) fn is_of_owner(self) -> bool {
        matches!(self, Self::OwnerProcesses(_) | Self::OwnerLinks(_))
    }

    /// Whether only the end of a process helps.
    pub(super) fn is_of_processes(self) -> bool {
        matches!(self, Self::OwnerProcesses(_) | Self::Processes(_) | Self::Memory(_))
    }

    /// Whether the limit is zero, so that waiting is useless.
    pub(super) fn is_closed(self) -> bool {
        match self {
            Self::OwnerProcesses(limit)
            | Self::OwnerLinks(limit)
            | Self::Processes(limit)
            | Self::Links(limit) => limit == 0,
            Self::Memory(_) => false,
        }
    }
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OwnerProcesses(limit) => {
                write!(f, "the owner has {limit} server processes, as many as one may have")
            }
            Self::OwnerLinks(limit) => {
                write!(f, "the owner has {limit} links to servers, as many as one may have")
            }
            Self::Processes(limit) => {
                write!(f, "there are {limit} server processes, as many as are allowed")
            }
            Self::Links(limit) => {
                write!(f, "there are {limit} links to servers, as many as are allowed")
            }
            Self::Memory(limit) => {
                write!(f, "server processes use more than the {limit} bytes that are allowed")
            }
        }
    }
}

/// No permit became free in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "at capacity: {obstacle}, and none of them is idle; end a session, raise the limit, \
     or try again in {} seconds", retry_after.as_secs()
)]
pub struct AtCapacity {
    /// Limit that blocked the request.
    pub obstacle: Obstacle,
    /// Time after which to try again.
    pub retry_after: Duration,
}

impl AtCapacity {
    /// Long enough for a call to end, short enough for a client that waits for an answer.
    const RETRY_AFTER: Duration = Duration::from_secs(5);

    pub(super) fn new(obstacle: Obstacle) -> Self {
        Self { obstacle, retry_after: Self::RETRY_AFTER }
    }
}

/// Kind of link that has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecycleFilter<'a> {
    /// Links of this owner, if its own limit is reached; otherwise of any owner.
    pub owner: Option<&'a Owner>,
    /// Whether it has to be a child process, because the end of another link would not help.
    pub process: bool,
}

/// Source of idle links.
pub trait Recycle: Send + Sync {
    /// Starts to end the least recently used idle link that matches. Returns whether there was one.
    ///
    /// It marks the link's permit as [leaving](super::Permit::leaving) before it returns, so that no second
    /// link is ended for the same request. The capacity is free when the permit is dropped.
    fn recycle(&self, wanted: RecycleFilter<'_>) -> bool;
}

/// Current use of the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetUsage {
    /// Child processes.
    pub processes: usize,
    /// Links, processes included.
    pub links: usize,
    /// Requests that wait for a permit.
    pub waiting: usize,
}

//! How much there may be at once.

use std::time::Duration;

use stayput_core::Owner;

/// How many links and child processes there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Child processes in all. Defaults to 128: one of Node or Python takes 50 to 100 MB.
    pub processes: usize,
    /// Links in all, processes included. Defaults to 20,000: an idle HTTP link has no socket.
    pub links: usize,
    /// Bytes that all children may use together. Above it a new process needs an old one to go.
    /// Defaults to no limit.
    pub memory: Option<u64>,
    /// What one owner may have of it.
    pub per_owner: PerOwner,
    /// How long one waits in line for a place. Defaults to 30 seconds: most clients give up a call
    /// after 60.
    pub wait: Duration,
}

/// How much of everything one owner may have.
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

/// What a link takes beside its own place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Whether it is a child process.
    pub process: bool,
}

/// What stands in the way of one more link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// All child processes that one owner may have.
    OwnerProcesses(usize),
    /// All links that one owner may have.
    OwnerLinks(usize),
    /// All child processes.
    Processes(usize),
    /// All links.
    Links(usize),
    /// The memory that children may use, in bytes.
    Memory(u64),
}

impl Obstacle {
    /// Whether it is in the way of its owner alone.
    pub(super) fn is_of_owner(self) -> bool {
        matches!(self, Self::OwnerProcesses(_) | Self::OwnerLinks(_))
    }

    /// Whether only the end of a process takes it away.
    pub(super) fn is_of_processes(self) -> bool {
        matches!(self, Self::OwnerProcesses(_) | Self::Processes(_) | Self::Memory(_))
    }

    /// Whether it is in the way for ever.
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

/// There was no place for one more link, and none became free in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "at capacity: {obstacle}, and none of them is idle; end a session, raise the limit, \
     or try again in {} seconds", retry_after.as_secs()
)]
pub struct AtCapacity {
    /// What stood in the way.
    pub obstacle: Obstacle,
    /// When it makes sense to try again.
    pub retry_after: Duration,
}

impl AtCapacity {
    /// Long enough for a call to end meanwhile, short enough for somebody who waits for an answer.
    const RETRY: Duration = Duration::from_secs(5);

    pub(super) fn new(obstacle: Obstacle) -> Self {
        Self { obstacle, retry_after: Self::RETRY }
    }
}

/// What kind of link has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Of this owner, because its own cap is the obstacle; else of anybody.
    pub owner: Option<&'a Owner>,
    /// Whether it has to be a child process: the end of another link would not help.
    pub process: bool,
}

/// Who knows which links are idle.
pub trait Recycle: Send + Sync {
    /// Begins to end the idle link that was not used for longest of those that are wanted, and says
    /// whether there was one.
    ///
    /// It tells the link's permit that it is [leaving](super::Permit::leaving) before it returns, so
    /// that no second link is ended for the same place. The place is free when the permit is dropped.
    fn recycle(&self, wanted: Wanted<'_>) -> bool;
}

/// How much there is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Child processes.
    pub processes: usize,
    /// Links, processes included.
    pub links: usize,
    /// Those in line for a place.
    pub waiting: usize,
}

//! How a child ended.

use std::{fmt, time::Duration};

use rustix::process::WaitIdStatus;

/// How the process that was started ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exited {
    /// It returned this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// Nobody saw it: its warden died first, or somebody else in this process waited for it.
    Unknown,
}

impl Exited {
    /// Whether it says that all went well.
    #[must_use]
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }

    pub(super) fn from_status(status: &WaitIdStatus) -> Self {
        if let Some(code) = status.exit_status() {
            return Self::Code(code);
        }
        status.terminating_signal().map_or(Self::Unknown, Self::Signal)
    }
}

impl fmt::Display for Exited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => {
                write!(f, "was killed by signal {signal}")?;
                let name = signal_hook::low_level::signal_name(*signal);
                name.map_or(Ok(()), |name| write!(f, " ({})", name.trim_start_matches("SIG")))
            }
            Self::Unknown => f.write_str("ended without anybody seeing how"),
        }
    }
}

/// How long a child may take at each step of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// From the end of its input to TERM.
    pub quit: Duration,
    /// From TERM to KILL.
    pub term: Duration,
}

impl Grace {
    /// KILL at once.
    pub const NONE: Self = Self { quit: Duration::ZERO, term: Duration::ZERO };

    /// The shorter of both at each step.
    pub(super) fn min(self, other: Self) -> Self {
        Self { quit: self.quit.min(other.quit), term: self.term.min(other.term) }
    }
}

/// Enough for a server that ends when its input does, or that tidies up on TERM.
impl Default for Grace {
    fn default() -> Self {
        Self { quit: Duration::from_secs(1), term: Duration::from_secs(2) }
    }
}

/// What it took to end a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It ended without a signal of ours.
    ByItself,
    /// It ended after TERM.
    Terminated,
    /// It had to be killed.
    Killed,
}

/// A child and all that belonged to it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// How the process that was started ended.
    pub exited: Exited,
    /// What that took.
    pub how: How,
    /// How many processes it left behind outside of its group; they were killed.
    pub leftovers: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_in_words() {
        assert_eq!(Exited::Code(3).to_string(), "exited with code 3");
        assert_eq!(Exited::Signal(9).to_string(), "was killed by signal 9 (KILL)");
        assert_eq!(Exited::Signal(63).to_string(), "was killed by signal 63");
        assert!(!Exited::Unknown.to_string().is_empty());
    }
}

//! Exit of a child.

use std::{fmt, time::Duration};

use rustix::process::WaitIdStatus;

/// Exit status of the started process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// The process returned this code.
    Code(i32),
    /// This signal killed the process.
    Signal(i32),
    /// The exit was not observed: the warden died first, or other code in this process reaped the child.
    Unknown,
}

impl ExitStatus {
    /// Returns whether the exit code is 0.
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

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => {
                write!(f, "was killed by signal {signal}")?;
                let name = signal_hook::low_level::signal_name(*signal);
                name.map_or(Ok(()), |name| write!(f, " ({})", name.trim_start_matches("SIG")))
            }
            Self::Unknown => f.write_str("ended with an unknown status"),
        }
    }
}

/// Time limits of the steps that end a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// Time from the end of the child's input to TERM.
    pub quit: Duration,
    /// Time from TERM to KILL.
    pub term: Duration,
}

impl Grace {
    /// Grace that sends KILL at once.
    pub const NONE: Self = Self { quit: Duration::ZERO, term: Duration::ZERO };

    /// Returns the shorter time of both at each step.
    pub(super) fn min(self, other: Self) -> Self {
        Self { quit: self.quit.min(other.quit), term: self.term.min(other.term) }
    }
}

/// Leaves enough time for a server that ends with its input, or that cleans up on TERM.
impl Default for Grace {
    fn default() -> Self {
        Self { quit: Duration::from_secs(1), term: Duration::from_secs(2) }
    }
}

/// Step that ended a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// The child ended without a signal from Stayput.
    ByItself,
    /// The child ended after TERM.
    Terminated,
    /// The child had to be killed.
    Killed,
}

/// Report of an ended child. No process of its tree is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndReport {
    /// Exit status of the started process.
    pub exited: ExitStatus,
    /// Step that ended the child.
    pub how: EndedBy,
    /// Number of processes that the child left outside its group; they were killed.
    pub leftovers: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_status_is_displayed_in_words() {
        assert_eq!(ExitStatus::Code(3).to_string(), "exited with code 3");
        assert_eq!(ExitStatus::Signal(9).to_string(), "was killed by signal 9 (KILL)");
        assert_eq!(ExitStatus::Signal(63).to_string(), "was killed by signal 63");
        assert!(!ExitStatus::Unknown.to_string().is_empty());
    }
}

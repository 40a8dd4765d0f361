//! Why the state behind a link is gone.

use std::fmt;

use crate::process::Exited;

/// The end of a link, and with it of the state that the server kept behind it.
#[derive(Clone, PartialEq, Eq)]
pub struct Loss {
    reason: LossReason,
    detail: Box<str>,
}

/// Why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// The child process ended, or closed its output, by itself.
    Exited(Exited),
    /// The server said that it does not know the session any more.
    Verdict,
    /// The stream that carried the session broke, and this transport has no way back to it.
    Disconnected,
    /// It was ended on purpose, with its session.
    Ended,
    /// Whoever held it let go of it. What an HTTP server keeps is still there.
    Released,
    /// It was idle and made room for another one.
    Evicted,
    /// It was restarted on purpose.
    Restarted,
    /// The server is configured in another way now.
    Reconfigured,
}

impl Loss {
    /// A loss for this reason; `detail` is for the operator and may be empty.
    #[must_use]
    pub fn new(reason: LossReason, detail: impl Into<Box<str>>) -> Self {
        Self { reason, detail: detail.into() }
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> LossReason {
        self.reason
    }

    /// Whether only we let go of the link: what an HTTP server keeps behind it is still there.
    pub(crate) fn leaves_state(&self) -> bool {
        matches!(self.reason, LossReason::Released | LossReason::Evicted)
    }

    /// What the operator may want to know: the last lines of a child, or what the server answered. It
    /// is never meant for a model or a client.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl LossReason {
    /// One word for programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exited(_) => "exited",
            Self::Verdict => "verdict",
            Self::Disconnected => "disconnected",
            Self::Ended => "ended",
            Self::Released => "released",
            Self::Evicted => "evicted",
            Self::Restarted => "restarted",
            Self::Reconfigured => "reconfigured",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            LossReason::Exited(exited) => write!(f, "the server's process {exited}"),
            LossReason::Verdict => f.write_str("the server does not know the session any more"),
            LossReason::Disconnected => f.write_str("the stream to the server broke"),
            LossReason::Ended => f.write_str("the link was ended"),
            LossReason::Released => f.write_str("the link was let go of"),
            LossReason::Evicted => f.write_str("the idle link made room for another one"),
            LossReason::Restarted => f.write_str("the server was restarted"),
            LossReason::Reconfigured => f.write_str("the server was configured anew"),
        }
    }
}

impl fmt::Debug for Loss {
    /// Without the detail: what a server writes can hold anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loss").field("reason", &self.reason).finish_non_exhaustive()
    }
}

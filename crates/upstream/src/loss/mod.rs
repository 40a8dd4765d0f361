//! Loss of the state behind a link.

pub(crate) mod session_unknown;

use std::fmt;

use stayput_process::ExitStatus;

/// End of a link, and with it of the state that the server kept behind it.
#[derive(Clone, PartialEq, Eq)]
pub struct Loss {
    reason: LossReason,
    detail: Box<str>,
}

/// Reason why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// The child process exited or closed its stdout.
    Exited(ExitStatus),
    /// The server does not know the session any more.
    SessionUnknown,
    /// The stream of the session broke, and the transport cannot resume it.
    Disconnected,
    /// The link was ended on purpose, with its session.
    Ended,
    /// All users released the link. The session on an HTTP server remains.
    Released,
    /// The link had a child process, which ended when the process that held it was stopped on purpose.
    Stopped,
    /// The link was idle and was evicted for another one.
    Evicted,
    /// The link was restarted on purpose.
    Restarted,
    /// The configuration of the server changed.
    Reconfigured,
}

impl Loss {
    /// Creates a loss. `detail` is for the operator and may be empty.
    #[must_use]
    pub fn new(reason: LossReason, detail: impl Into<Box<str>>) -> Self {
        Self { reason, detail: detail.into() }
    }

    /// Reason of the loss.
    #[must_use]
    pub fn reason(&self) -> LossReason {
        self.reason
    }

    /// Whether only this side ended the link: the session on an HTTP server remains.
    pub(crate) fn leaves_state(&self) -> bool {
        matches!(self.reason, LossReason::Released | LossReason::Evicted)
    }

    /// Details for the operator: the end of a child's stderr, or the server's answer. Never shown to a model
    /// or client.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl LossReason {
    /// Machine-readable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exited(_) => "exited",
            Self::SessionUnknown => "session_unknown",
            Self::Disconnected => "disconnected",
            Self::Ended => "ended",
            Self::Released => "released",
            Self::Stopped => "stopped",
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
            LossReason::SessionUnknown => {
                f.write_str("the server does not know the session any more")
            }
            LossReason::Disconnected => f.write_str("the stream to the server broke"),
            LossReason::Ended => f.write_str("the link was ended"),
            LossReason::Released => f.write_str("the link was released"),
            LossReason::Stopped => f.write_str("the process that held the link was stopped"),
            LossReason::Evicted => f.write_str("the idle link made room for another one"),
            LossReason::Restarted => f.write_str("the server was restarted"),
            LossReason::Reconfigured => f.write_str("the server was configured anew"),
        }
    }
}

impl fmt::Debug for Loss {
    /// Omits the detail, which may be confidential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loss").field("reason", &self.reason).finish_non_exhaustive()
    }
}

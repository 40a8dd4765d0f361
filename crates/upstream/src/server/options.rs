//! Options of a server: era, isolation, timeouts.

use stayput_process::Grace;
use stayput_wire::Era;

use super::{SpareOptions, Timeouts, expand::Variable};

/// Options of a server, besides its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Era to use.
    pub era: EraChoice,
    /// Isolation of links. By default the era decides, see [`Server::isolation`](crate::Server::isolation).
    pub isolation: Option<Isolation>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Time that its process gets to exit.
    pub grace: Grace,
    /// Spare processes to keep ready.
    pub warm: SpareOptions,
    /// Whether the server-side session is deleted when the session ends. Defaults to yes: otherwise the
    /// server would keep a session that is never used again.
    pub delete_on_end: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            era: EraChoice::Auto,
            isolation: None,
            timeouts: Timeouts::default(),
            grace: Grace::default(),
            warm: SpareOptions::default(),
            delete_on_end: true,
        }
    }
}

impl Options {
    /// Eras to try, in order. This decides how the server is used, so it is part of the identity.
    pub(super) fn era_order(&self, preferred: Era) -> &'static str {
        match (self.era, self.isolation, preferred) {
            (EraChoice::Legacy, ..) => "legacy",
            (EraChoice::Modern, ..) => "modern",
            (EraChoice::Auto, Some(Isolation::Shared), _) => "modern, then legacy",
            (EraChoice::Auto, _, Era::Legacy) => "legacy, then modern",
            (EraChoice::Auto, _, Era::Modern) => "modern for modern clients",
        }
    }
}

/// Choice of the era for a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// Probe the server once.
    #[default]
    Auto,
    /// Legacy, without a probe.
    Legacy,
    /// Modern, without a probe.
    Modern,
}

/// Set of sessions that share a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Each session has its own process or remote session.
    PerSession,
    /// All sessions of one owner share a link.
    PerOwner,
    /// All sessions share a link.
    Shared,
}

impl Isolation {
    /// Name in configuration files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PerSession => "per-session",
            Self::PerOwner => "per-owner",
            Self::Shared => "shared",
        }
    }

    /// Whether a link with this isolation has a value for `variable`.
    pub(super) fn knows(self, variable: Variable) -> bool {
        match self {
            Self::PerSession => true,
            Self::PerOwner => !variable.is_of_session(),
            Self::Shared => false,
        }
    }
}

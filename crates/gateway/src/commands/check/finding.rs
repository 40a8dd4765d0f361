//! What was found, and what to do about it.

/// What was found, of all servers.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) servers: Vec<OfServer>,
    /// What of the configuration has no effect, as sentences.
    pub(super) warnings: Vec<String>,
}

impl Checked {
    /// Whether nothing is wrong.
    pub(super) fn is_well(&self) -> bool {
        self.servers.iter().all(|it| it.findings.is_empty())
    }
}

/// What was found of one server.
#[derive(Debug, Default)]
pub(super) struct OfServer {
    pub(super) name: String,
    pub(super) transport: &'static str,
    /// How it is spoken to, if it can be.
    pub(super) era: Option<&'static str>,
    pub(super) version: Option<String>,
    pub(super) tools: Option<usize>,
    pub(super) isolation: Isolated,
    /// How long start, handshake and lists took.
    pub(super) millis: Option<u128>,
    pub(super) findings: Vec<Finding>,
    /// What is as it may be, and worth knowing.
    pub(super) notes: Vec<String>,
}

/// Something that is wrong.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) what: String,
    /// What to do about it, if that is known.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: None }
    }

    pub(super) fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

/// How far two sessions are apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Isolated {
    /// Nobody knows.
    #[default]
    Unknown,
    /// Each has a process, and nothing was seen that they share.
    OwnProcess,
    /// Each has a session on the server.
    OwnSession,
    /// What one did was not there for the other.
    Apart,
    /// The server keeps nothing between calls.
    Stateless,
    /// All have one link, by choice or because the server is modern.
    Shared,
    /// The second one does not work beside the first.
    SecondFails,
    /// One sees what the other did.
    Mixed,
}

impl Isolated {
    /// In a word or two.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "-",
            Self::OwnProcess => "own process",
            Self::OwnSession => "own session",
            Self::Apart => "apart",
            Self::Stateless => "stateless",
            Self::Shared => "shared",
            Self::SecondFails => "second fails",
            Self::Mixed => "mixed",
        }
    }
}

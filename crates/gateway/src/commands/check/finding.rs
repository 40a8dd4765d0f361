//! Findings of a check, and their remedies.

/// Results of all servers.
#[derive(Debug, Default)]
pub(super) struct CheckReport {
    pub(super) servers: Vec<ServerReport>,
    /// Warnings about settings.
    pub(super) warnings: Vec<String>,
}

impl CheckReport {
    /// Whether there is no finding.
    pub(super) fn is_well(&self) -> bool {
        self.servers.iter().all(|it| it.findings.is_empty())
    }
}

/// State that no check sees.
const OUTSIDE: &str = "state outside of the processes and sessions of the servers: accounts, databases and web services that \
                       two sessions may share";

impl CheckReport {
    /// Lists what was not tested.
    pub(super) fn not_tested(&self) -> Vec<String> {
        let mut all = vec![OUTSIDE.to_owned()];
        let is_unprobed = |it: &&ServerReport| {
            let own =
                matches!(it.isolation, ProbedIsolation::OwnProcess | ProbedIsolation::OwnSession);
            own && !it.probed
        };
        let names: Vec<&str> =
            self.servers.iter().filter(is_unprobed).map(|it| &*it.name).collect();
        if !names.is_empty() {
            all.push(format!(
                "whether sessions see each other's state through the tools of {}: none of them was called",
                names.join(", ")
            ));
        }
        all
    }
}

/// Result of one server.
#[derive(Debug, Default)]
pub(super) struct ServerReport {
    pub(super) name: String,
    pub(super) transport: &'static str,
    /// Era of its protocol, if it answered.
    pub(super) era: Option<&'static str>,
    pub(super) version: Option<String>,
    pub(super) tools: Option<usize>,
    pub(super) isolation: ProbedIsolation,
    /// Duration of start, handshake and lists.
    pub(super) millis: Option<u128>,
    pub(super) findings: Vec<Finding>,
    /// Problems that other clients may have with it.
    pub(super) warnings: Vec<String>,
    /// Notes that are no findings.
    pub(super) notes: Vec<String>,
    /// Whether tools were called to compare two sessions.
    pub(super) probed: bool,
}

/// Problem of a server.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) what: String,
    /// Remedy, if one is known.
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

/// Isolation of two sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ProbedIsolation {
    /// Not known.
    #[default]
    Unknown,
    /// Each session has a process, and no shared file was found.
    OwnProcess,
    /// Each session has a session on the server.
    OwnSession,
    /// Changes of one session were not visible in the other.
    Apart,
    /// The server keeps no state between calls.
    Stateless,
    /// All sessions share one link, by configuration or because the server is modern.
    Shared,
    /// A second session does not work next to a first one.
    SecondFails,
    /// One session sees changes of the other.
    Mixed,
}

impl ProbedIsolation {
    /// Returns the word for the table.
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

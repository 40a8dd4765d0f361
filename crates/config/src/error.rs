//! What is wrong with a configuration.

use std::{fmt, path::PathBuf};

use stayput_upstream::ServerProblem;
use stayput_wire::json::SyntaxKind;

/// A configuration that cannot be used: which file, where in it, and what to do.
///
/// Values are not repeated: tokens and passwords stand among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub(crate) file: PathBuf,
    pub(crate) place: Option<Place>,
    /// The way to the value, such as `mcpServers.notes.env.TOKEN`; empty for the whole file.
    pub(crate) key: String,
    pub(crate) problem: Box<Problem>,
}

/// Line and column, both from 1; a column is a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Place {
    pub(crate) fn of(text: &str, at: usize) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        Self { line, column: before[begin..].chars().count() + 1 }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(Place { line, column }) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ConfigError {}

/// What can be wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be read.
    #[error("the file cannot be read ({0}); check its name and its permissions")]
    Unreadable(std::io::ErrorKind),
    /// The file is too large.
    #[error("the file has more than {limit} bytes, too many for a configuration")]
    TooLarge {
        /// The most that there may be.
        limit: u64,
    },
    /// The file is no text.
    #[error("the file is not UTF-8; save it as such")]
    NotUtf8,
    /// The file is not JSON.
    #[error("this is not JSON: {0}")]
    Syntax(SyntaxKind),
    /// A comment has no end.
    #[error("this comment has no end; add */")]
    Comment,
    /// A value is of another kind.
    #[error("this must be {expected}")]
    Form {
        /// What it must be.
        expected: &'static str,
    },
    /// A key of ours that there is not.
    #[error("there is no such key; the nearest that there is, is \"{nearest}\"")]
    UnknownKey {
        /// What was meant, most likely.
        nearest: &'static str,
    },
    /// A word that is none of the few that there are.
    #[error("there is no such value; the nearest that there is, is \"{nearest}\"")]
    UnknownValue {
        /// What was meant, most likely.
        nearest: &'static str,
    },
    /// A key that stands twice in one object.
    #[error("this key stands here twice; keep one of them")]
    Twice,
    /// There is no list of servers.
    #[error("no servers are configured; add \"mcpServers\" with at least one")]
    NoServers,
    /// A name that a server cannot have.
    #[error(
        "this name cannot be part of a path; use 1 to 64 letters, digits, '.', '_' and '-', \
         and not dots alone"
    )]
    Name,
    /// Two names that some take for one.
    #[error("another server is called {other:?}, which differs in letter case at most; rename one")]
    SameName {
        /// The other one.
        other: String,
    },
    /// Neither command nor URL.
    #[error("it has neither \"command\" nor \"url\"; say how the server is reached")]
    NoTransport,
    /// Command and URL.
    #[error("it has both \"command\" and \"url\"; keep one, or say which by \"type\"")]
    TwoTransports,
    /// Something that its kind needs is missing.
    #[error("its \"type\" needs \"{needs}\", and there is none")]
    Needs {
        /// What is missing.
        needs: &'static str,
    },
    /// A variable that is not set.
    #[error("the environment variable {name} is not set; set it, or write ${{{name}:-default}}")]
    Unset {
        /// Its name.
        name: String,
    },
    /// A `${` without an end.
    #[error("a ${{ is not closed; add a }}, or write $${{ for a plain one")]
    Unclosed,
    /// A `${…}` that means nothing.
    #[error(
        "${{{name}}} is nothing that can be filled in; there are ${{NAME}}, ${{NAME:-default}}, \
         ${{env:NAME}}, ${{file:PATH}} and ${{stayput}}; write $${{ for a plain one"
    )]
    UnknownExpansion {
        /// Its name.
        name: String,
    },
    /// A value of each session, where there is none.
    #[error("${{{name}}} has a value for each session only; it cannot stand here")]
    NotHere {
        /// Its name.
        name: String,
    },
    /// A dollar before a `${…}`.
    #[error(
        "the value before ${{{name}}} ends with $, which would change its meaning; separate them"
    )]
    Dollar {
        /// Its name.
        name: String,
    },
    /// A `${…}` in another.
    #[error("a ${{ cannot stand inside another; use a variable of its own")]
    Nested,
    /// A file that the configuration names cannot be read.
    #[error("the file {file:?} cannot be read ({kind}); check its name and its permissions")]
    File {
        /// Which file.
        file: PathBuf,
        /// What the system says.
        kind: std::io::ErrorKind,
    },
    /// Such a file is too large.
    #[error("the file {file:?} has more than {limit} bytes, too many for a value")]
    LargeFile {
        /// Which file.
        file: PathBuf,
        /// The most that there may be.
        limit: u64,
    },
    /// Such a file is no text.
    #[error("the file {file:?} is not text in UTF-8")]
    BinaryFile {
        /// Which file.
        file: PathBuf,
    },
    /// A line of such a file is no variable.
    #[error("line {line} of {file:?} is not of the form NAME=value")]
    EnvLine {
        /// Which file.
        file: PathBuf,
        /// Which line.
        line: usize,
    },
    /// There is no folder of the user.
    #[error("~ stands for the folder of the user, and HOME is not set; write the whole path")]
    NoHome,
    /// The running program is not known.
    #[error("the path of the running program is not known; write it out")]
    NoProgram,
    /// A folder that is no text.
    #[error("the folder of this file is not UTF-8; write the whole path")]
    Folder,
    /// What is wrong with a server as it is written.
    #[error("{0}")]
    Server(ServerProblem),
    /// What else is wrong, as a sentence.
    #[error("{0}")]
    Other(String),
}

//! What is wrong with a configuration.

use std::{fmt, path::PathBuf};

use stayput_stores::AddressError;
use stayput_upstream::ServerProblem;
use stayput_wire::json::SyntaxKind;

/// A configuration that cannot be used: which file, where in it, and what to do.
///
/// Values are not repeated: tokens and passwords stand among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    pub(super) file: PathBuf,
    pub(super) place: Option<Place>,
    /// The way to the value, such as `mcpServers.notes.env.TOKEN`; empty for the whole file.
    pub(super) key: String,
    pub(super) problem: Box<Problem>,
}

/// Line and column, both from 1; a column is a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Place {
    pub(super) fn of(text: &str, at: usize) -> Self {
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
pub(crate) enum Problem {
    #[error("the file cannot be read ({0}); check its name and its permissions")]
    Unreadable(std::io::ErrorKind),
    #[error("the file has more than {limit} bytes, too many for a configuration")]
    TooLarge { limit: u64 },
    #[error("the file is not UTF-8; save it as such")]
    NotUtf8,
    #[error("this is not JSON: {0}")]
    Syntax(SyntaxKind),
    #[error("this comment has no end; add */")]
    Comment,
    #[error("this must be {expected}")]
    Form { expected: &'static str },
    #[error("there is no such key; the nearest that there is, is \"{nearest}\"")]
    UnknownKey { nearest: &'static str },
    #[error("there is no such value; the nearest that there is, is \"{nearest}\"")]
    UnknownValue { nearest: &'static str },
    #[error("this key stands here twice; keep one of them")]
    Twice,
    #[error("no servers are configured; add \"mcpServers\" with at least one")]
    NoServers,
    #[error(
        "this name cannot be part of a path; use 1 to 64 letters, digits, '.', '_' and '-', \
         and not dots alone"
    )]
    Name,
    #[error("another server is called {other:?}, which differs in letter case at most; rename one")]
    SameName { other: String },
    #[error("it has neither \"command\" nor \"url\"; say how the server is reached")]
    NoTransport,
    #[error("it has both \"command\" and \"url\"; keep one, or say which by \"type\"")]
    TwoTransports,
    #[error("its \"type\" needs \"{needs}\", and there is none")]
    Needs { needs: &'static str },
    #[error("the environment variable {name} is not set; set it, or write ${{{name}:-default}}")]
    Unset { name: String },
    #[error("a ${{ is not closed; add a }}, or write $${{ for a plain one")]
    Unclosed,
    #[error(
        "${{{name}}} is nothing that can be filled in; there are ${{NAME}}, ${{NAME:-default}}, \
         ${{env:NAME}}, ${{file:PATH}} and ${{stayput}}; write $${{ for a plain one"
    )]
    UnknownExpansion { name: String },
    #[error("${{{name}}} has a value for each session only; it cannot stand here")]
    NotHere { name: String },
    #[error(
        "the value before ${{{name}}} ends with $, which would change its meaning; separate them"
    )]
    Dollar { name: String },
    #[error("a ${{ cannot stand inside another; use a variable of its own")]
    Nested,
    #[error("the file {file:?} cannot be read ({kind}); check its name and its permissions")]
    File { file: PathBuf, kind: std::io::ErrorKind },
    #[error("the file {file:?} has more than {limit} bytes, too many for a value")]
    LargeFile { file: PathBuf, limit: u64 },
    #[error("the file {file:?} is not text in UTF-8")]
    BinaryFile { file: PathBuf },
    #[error("line {line} of {file:?} is not of the form NAME=value")]
    EnvLine { file: PathBuf, line: usize },
    #[error("~ stands for the folder of the user, and HOME is not set; write the whole path")]
    NoHome,
    #[error("the path of the running program is not known; write it out")]
    NoProgram,
    #[error("the folder of this file is not UTF-8; write the whole path")]
    Folder,
    #[error("{0}")]
    Server(ServerProblem),
    #[error("{0}")]
    Store(AddressError),
}

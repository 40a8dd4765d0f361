//! Errors of a configuration.

use std::{fmt, path::PathBuf};

use stayput_upstream::ServerProblem;
use stayput_wire::json::SyntaxKind;

/// Error of a configuration: file, place, problem and remedy.
///
/// Values are not repeated, because they may be tokens and passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub(crate) file: PathBuf,
    pub(crate) place: Option<Place>,
    /// Path of the value, such as `mcpServers.notes.env.TOKEN`; empty for the whole file.
    pub(crate) key: String,
    pub(crate) problem: Box<Problem>,
}

/// Line and column, both from 1. A column is a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Place {
    pub(crate) fn find(text: &str, at: usize) -> Self {
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

/// Problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be read.
    #[error("{}", unreadable("the file", *.0))]
    Unreadable(std::io::ErrorKind),
    /// The file is too large.
    #[error("the file has more than {limit} bytes, too many for a configuration")]
    TooLarge {
        /// Largest size in bytes.
        limit: u64,
    },
    /// The file is not UTF-8.
    #[error("the file is not UTF-8; save it as such")]
    NotUtf8,
    /// The file is not JSON.
    #[error("this is not JSON: {0}")]
    Syntax(SyntaxKind),
    /// The file is not TOML.
    #[error("this is not TOML: {0}")]
    Toml(String),
    /// A comment has no end.
    #[error("this comment has no end; add */")]
    Comment,
    /// A value has the wrong type or form.
    #[error("this must be {expected}")]
    Form {
        /// Description of the expected form.
        expected: &'static str,
    },
    /// Unknown key.
    #[error("unknown key; the most similar one is \"{nearest}\"")]
    UnknownKey {
        /// Most similar known key.
        nearest: &'static str,
    },
    /// Unknown word.
    #[error("unknown value; the most similar one is \"{nearest}\"")]
    UnknownValue {
        /// Most similar known word.
        nearest: &'static str,
    },
    /// Key of Stayput outside of its `stayput` object.
    #[error("this key has no effect here; move it into the \"stayput\" object of the {place}")]
    Misplaced {
        /// Owner of that object: the server, or the file.
        place: &'static str,
    },
    /// Duplicate key in an object.
    #[error("this key is here twice; keep one of them")]
    Twice,
    /// No server list.
    #[error("no servers are configured; add \"mcpServers\" with at least one")]
    NoServers,
    /// Invalid name of a server.
    #[error(
        "this name cannot be part of a path; use 1 to 64 letters, digits, '.', '_' and '-', \
         and not dots alone"
    )]
    Name,
    /// Two names that differ in letter case at most.
    #[error("another server is called {other:?}, which differs in letter case at most; rename one")]
    SameName {
        /// Name of the other server.
        other: String,
    },
    /// Neither command nor URL.
    #[error("it has neither \"command\" nor \"url\"; say how the server is reached")]
    NoTransport,
    /// Command and URL.
    #[error("it has both \"command\" and \"url\"; keep one, or say which by \"type\"")]
    TwoTransports,
    /// A key that the transport needs is missing.
    #[error("its \"type\" needs \"{needs}\", which is missing")]
    Needs {
        /// Missing key.
        needs: &'static str,
    },
    /// Environment variable that is not set.
    #[error("the environment variable {name} is not set; set it, or write ${{{name}:-default}}")]
    Unset {
        /// Name of the variable.
        name: String,
    },
    /// `${` without `}`.
    #[error("a ${{ is not closed; add a }}, or write $${{ for a plain one")]
    UnclosedComment,
    /// Unknown `${…}`.
    #[error(
        "${{{name}}} is not a known expansion{}; there are ${{NAME}}, ${{NAME:-default}}, ${{env:NAME}}, \
         ${{file:PATH}}, ${{stayput}}, ${{session.dir}}, ${{owner.dir}}, ${{session.hash}} and ${{owner.hash}}; write $${{ for \
         a plain one",
        similar_expansion(name)
    )]
    UnknownExpansion {
        /// Text between the braces.
        name: String,
    },
    /// `${input:…}`, which VS Code asks its user for.
    #[error(
        "${{input:{name}}} is missing: VS Code asks for it in its window, and Stayput has no window; write ${{env:NAME}} \
         and set that variable"
    )]
    Input {
        /// Id of the input.
        name: String,
    },
    /// Session value in a place that is not expanded per session.
    #[error("${{{name}}} has a value for each session only; it cannot be used here")]
    NotHere {
        /// Text between the braces.
        name: String,
    },
    /// `$` before a `${…}`, which would escape it.
    #[error(
        "the value before ${{{name}}} ends with $, which would change its meaning; separate them"
    )]
    Dollar {
        /// Text between the braces.
        name: String,
    },
    /// Nested `${…}`.
    #[error("a ${{ cannot be inside another; use a variable of its own")]
    Nested,
    /// A file that the configuration names cannot be read.
    #[error("{}", unreadable(&format!("the file {file:?}"), *kind))]
    File {
        /// Path of the file.
        file: PathBuf,
        /// Error of the operating system.
        kind: std::io::ErrorKind,
    },
    /// A file that the configuration names is too large.
    #[error("the file {file:?} has more than {limit} bytes, too many for a value")]
    LargeFile {
        /// Path of the file.
        file: PathBuf,
        /// Largest size in bytes.
        limit: u64,
    },
    /// A file that the configuration names is not UTF-8.
    #[error("the file {file:?} is not text in UTF-8")]
    BinaryFile {
        /// Path of the file.
        file: PathBuf,
    },
    /// Invalid line of an environment file.
    #[error("line {line} of {file:?} is not of the form NAME=value")]
    EnvLine {
        /// Path of the file.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
    },
    /// `~` without a home folder.
    #[error("~ means the home folder, and HOME is not set; write the whole path")]
    NoHome,
    /// The path of the running program is unknown.
    #[error("the path of the running program is not known; write it out")]
    NoProgram,
    /// A folder that is not UTF-8.
    #[error("the folder of this file is not UTF-8; write the whole path")]
    Folder,
    /// Invalid server definition.
    #[error("{0}")]
    Server(ServerProblem),
    /// Any other problem, as a sentence.
    #[error("{0}")]
    Other(String),
}

/// Message about a file that cannot be read, with what to check.
fn unreadable(file: &str, kind: std::io::ErrorKind) -> String {
    use std::io::ErrorKind;
    match kind {
        ErrorKind::NotFound => format!("{file} does not exist; check its name"),
        ErrorKind::PermissionDenied => format!("{file} may not be read; check its permissions"),
        ErrorKind::IsADirectory => format!("{file} is a folder; name a file in it"),
        kind => format!("{file} cannot be read ({kind}); check its name and its permissions"),
    }
}

/// Names the expansion that was probably meant; empty if none is similar.
fn similar_expansion(name: &str) -> String {
    const EXPANSIONS: [&str; 5] =
        ["session.dir", "owner.dir", "session.hash", "owner.hash", "stayput"];
    let similar = stayput_upstream::nearest(name, &EXPANSIONS);
    // Two edits catch a missing and a swapped letter; more would guess.
    match strsim::levenshtein(similar, name) <= 2 {
        true => format!("; the most similar one is ${{{similar}}}"),
        false => String::new(),
    }
}

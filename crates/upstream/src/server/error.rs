//! Errors in the configuration of a server.

use super::expand::{TemplateError, Variable};

/// Invalid configuration of a server.
///
/// The text does not repeat configured values, which may be secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server {server:?} cannot be used: {problem}")]
pub struct ServerError {
    server: String,
    problem: ServerProblem,
}

impl ServerError {
    pub(super) fn new(server: &str, problem: ServerProblem) -> Self {
        Self { server: server.chars().take(128).collect(), problem }
    }

    /// Name of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Problem that was found.
    #[must_use]
    pub fn problem(&self) -> &ServerProblem {
        &self.problem
    }
}

/// Problem in the configuration of a server. `what` names the place, such as "argument 2".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerProblem {
    /// The name is invalid.
    #[error("its name must have 1 to 128 bytes and no control character")]
    Name,
    /// A required value is empty.
    #[error("{what} is empty")]
    Empty {
        /// Place of the problem.
        what: String,
    },
    /// A text contains a NUL character, which the operating system does not accept.
    #[error("{what} has a NUL character; remove it")]
    Nul {
        /// Place of the problem.
        what: String,
    },
    /// A path is not UTF-8.
    #[error("{what} is not UTF-8; use a path of plain text")]
    NotUtf8 {
        /// Place of the problem.
        what: String,
    },
    /// A `${session.…}` or `${owner.…}` does not exist.
    #[error("{what} has the unknown ${{{name}}}; the most similar one is ${{{nearest}}}")]
    Unknown {
        /// Place of the problem.
        what: String,
        /// Name as it was written, truncated.
        name: String,
        /// Most similar known name.
        nearest: &'static str,
    },
    /// A `${session.` or `${owner.` is not closed.
    #[error("{what} has a ${{ that is not closed; add a }}, or write $${{ for a plain one")]
    Unclosed {
        /// Place of the problem.
        what: String,
    },
    /// A local directory is used in a value that is sent to another machine.
    #[error(
        "{what} has ${{{variable}}}, a folder of this machine; use ${{session.hash}} or ${{owner.hash}}"
    )]
    Folder {
        /// Place of the problem.
        what: String,
        /// Variable of the directory.
        variable: &'static str,
    },
    /// A variable has no value for this link.
    #[error(
        "{what} has ${{{variable}}}, and this link has none; \
         use isolation per-session, or per-owner if only ${{owner.…}} is used"
    )]
    NoValue {
        /// Place of the problem.
        what: String,
        /// Variable without a value.
        variable: &'static str,
    },
    /// A variable has no value with the configured isolation.
    #[error(
        "it uses ${{{variable}}}, which differs from one link to the next, but its isolation is {isolation}; \
         choose per-session, or per-owner if only ${{owner.…}} is used"
    )]
    Isolation {
        /// Variable without a value.
        variable: &'static str,
        /// Configured isolation.
        isolation: &'static str,
    },
    /// A server behind a URL has no processes to start in advance.
    #[error(
        "`warm` starts processes before they are needed, and this server is reached by a URL; remove `warm`"
    )]
    WarmUrl,
    /// A variable has no value before the session is known.
    #[error(
        "`warm` starts a process before its session is known, but it uses ${{{variable}}}; \
         remove `warm`, or use ${{session.dir}} instead"
    )]
    WarmVariable {
        /// Variable without a value.
        variable: &'static str,
    },
    /// The URL is invalid.
    #[error("its URL cannot be used: {problem}; write it as https://host/path")]
    Url {
        /// Description of the problem.
        problem: String,
    },
    /// A header name is invalid.
    #[error("the name of header {number} is not one; use letters, digits and '-', no colon")]
    HeaderName {
        /// Position of the header, starting at 1.
        number: usize,
    },
    /// A header value is invalid.
    #[error("the value of the header '{name}' has characters that no header carries")]
    HeaderValue {
        /// Name of the header.
        name: String,
    },
    /// The transport sets this header itself.
    #[error("the header '{name}' is written by Stayput itself; remove it")]
    HeaderTaken {
        /// Name of the header.
        name: String,
    },
    /// The name of an environment variable is invalid.
    #[error("the name of environment variable {number} is empty or has a '=' or a NUL")]
    EnvName {
        /// Position of the variable, starting at 1.
        number: usize,
    },
    /// The environment variable is reserved: Stayput identifies its children by it.
    #[error("the environment variable '{name}' is set by Stayput itself; remove it")]
    EnvTaken {
        /// Name of the variable.
        name: String,
    },
}

impl ServerProblem {
    pub(super) fn template(what: &str, error: TemplateError) -> Self {
        let what = what.to_owned();
        match error {
            TemplateError::Unclosed => Self::Unclosed { what },
            TemplateError::Unknown { name, nearest } => Self::Unknown { what, name, nearest },
        }
    }

    pub(super) fn no_value(what: &str, variable: Variable) -> Self {
        Self::NoValue { what: what.to_owned(), variable: variable.name() }
    }
}

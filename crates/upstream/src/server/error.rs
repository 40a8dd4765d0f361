//! What is wrong with the configuration of a server.

use super::expand::{TemplateError, Variable};

/// A server that cannot be used as it is configured.
///
/// Values of the configuration are not repeated: most secrets stand there.
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

    /// Which server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// What is wrong with it.
    #[must_use]
    pub fn problem(&self) -> &ServerProblem {
        &self.problem
    }
}

/// What is wrong with a server. `what` says where, such as "argument 2".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerProblem {
    /// It cannot be called so.
    #[error("its name must have 1 to 128 bytes and no control character")]
    Name,
    /// Something that must be there is not.
    #[error("{what} is empty")]
    Empty {
        /// Where.
        what: String,
    },
    /// The operating system takes no text with a NUL inside.
    #[error("{what} has a NUL character; remove it")]
    Nul {
        /// Where.
        what: String,
    },
    /// A path that cannot be written in a configuration.
    #[error("{what} is not UTF-8; use a path of plain text")]
    NotUtf8 {
        /// Where.
        what: String,
    },
    /// A `${session.…}` or `${owner.…}` that does not exist.
    #[error("{what} has the unknown ${{{name}}}; the nearest that there is, is ${{{nearest}}}")]
    Unknown {
        /// Where.
        what: String,
        /// The name as it was written, cut if it is long.
        name: String,
        /// The known name that is most like it.
        nearest: &'static str,
    },
    /// A `${session.` or `${owner.` without its end.
    #[error("{what} has a ${{ that is not closed; add a }}, or write $${{ for a plain one")]
    Unclosed {
        /// Where.
        what: String,
    },
    /// A folder of this machine, where another machine reads it.
    #[error(
        "{what} has ${{{variable}}}, a folder of this machine; use ${{session.hash}} or ${{owner.hash}}"
    )]
    Folder {
        /// Where.
        what: String,
        /// The name of the folder.
        variable: &'static str,
    },
    /// A name that has no value for this link.
    #[error(
        "{what} has ${{{variable}}}, and this link has none; \
         use isolation per-session, or per-owner if only ${{owner.…}} is used"
    )]
    NoValue {
        /// Where.
        what: String,
        /// The name without a value.
        variable: &'static str,
    },
    /// The isolation that was chosen leaves a name without a value.
    #[error(
        "it uses ${{{variable}}}, which differs from one link to the next, but its isolation is {isolation}; \
         choose per-session, or per-owner if only ${{owner.…}} is used"
    )]
    Isolation {
        /// The name that would have no value.
        variable: &'static str,
        /// The isolation that was chosen.
        isolation: &'static str,
    },
    /// The URL cannot be used.
    #[error("its URL cannot be used: {problem}; write it as https://host/path")]
    Url {
        /// What is wrong with it.
        problem: String,
    },
    /// A name that no header can have.
    #[error("the name of header {number} is not one; use letters, digits and '-', no colon")]
    HeaderName {
        /// Which one, the first being 1.
        number: usize,
    },
    /// A value that no header can have.
    #[error("the value of the header '{name}' has characters that no header carries")]
    HeaderValue {
        /// Which one.
        name: String,
    },
    /// A header that the transport writes itself.
    #[error("the header '{name}' is written by Stayput itself; remove it")]
    HeaderTaken {
        /// Which one.
        name: String,
    },
    /// A name that no environment variable can have.
    #[error("the name of environment variable {number} is empty or has a '=' or a NUL")]
    EnvName {
        /// Which one, the first being 1.
        number: usize,
    },
    /// An environment variable by which Stayput finds its children again.
    #[error("the environment variable '{name}' is set by Stayput itself; remove it")]
    EnvTaken {
        /// Which one.
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

//! Errors of starting a child.

use std::{io, path::PathBuf};

use rustix::io::Errno;

use super::Program;

/// Reason why a child could not be started. No process of it runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The program does not exist.
    #[error("{}", not_found(command))]
    NotFound {
        /// Command as it was given.
        command: String,
    },
    /// The program exists and may not be executed.
    #[error("`{command}` may not be executed; make the file executable for this user")]
    Denied {
        /// Command as it was given.
        command: String,
    },
    /// The working directory cannot be used.
    #[error(
        "the working directory {} of `{command}` cannot be used ({source}); create it, or name \
         another one", cwd.display()
    )]
    Cwd {
        /// Command as it was given.
        command: String,
        /// Working directory as it was given.
        cwd: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Arguments and environment together are longer than the system allows.
    #[error(
        "the arguments and the environment of `{command}` are longer than this system allows; \
         shorten them, or put a long value into a file"
    )]
    TooBig {
        /// Command as it was given.
        command: String,
    },
    /// A limit of the machine or of this user is reached.
    #[error(
        "`{command}` could not be started because a limit is reached ({source}); raise the limits \
         on open files, processes and memory, or keep fewer links"
    )]
    Limit {
        /// Command as it was given.
        command: String,
        /// Error of the system, which names the limit.
        source: io::Error,
    },
    /// No warden is available to start the child.
    #[error("the warden that starts child processes is gone: {reason}; try again")]
    WardenGone {
        /// Description of the warden's end.
        reason: String,
    },
    /// [`Processes::close`](super::Processes::close) was called.
    #[error("no child is started any more, because its owner is closing; make a new one")]
    Closed,
    /// Any other error.
    #[error("`{command}` could not be started: {source}; run it by hand to see whether it works")]
    Other {
        /// Command as it was given.
        command: String,
        /// Error of the system.
        source: io::Error,
    },
}

/// Message about a program that does not exist, with the likely mistake.
fn not_found(command: &str) -> String {
    match (command.split_once(' '), command.contains('/')) {
        // Arguments in the place of the program.
        (Some((program, _)), _) => format!(
            "there is no program named `{command}`; give `{program}` as the command, and the rest as arguments"
        ),
        // A path is not searched on the PATH.
        (None, true) => {
            format!(
                "there is no file `{command}`, seen from its working directory; give its full path"
            )
        }
        (None, false) => format!(
            "no program named `{command}` was found on the PATH of its environment; install it, or give its \
             full path"
        ),
    }
}

impl StartError {
    /// Returns the message for a client, without any path. The caller has named the server before it.
    #[must_use]
    pub fn brief(&self) -> String {
        match self {
            Self::NotFound { .. } => "its command was not found".to_owned(),
            Self::Denied { .. } => "its command is not allowed to run".to_owned(),
            Self::Cwd { .. } => "its working folder cannot be used".to_owned(),
            Self::TooBig { .. } => "its arguments and its environment are too long".to_owned(),
            Self::Limit { source, .. } => format!("a limit is reached ({source})"),
            Self::WardenGone { .. } => "what starts its command is gone; try again".to_owned(),
            Self::Closed => self.to_string(),
            Self::Other { source, .. } => source.to_string(),
        }
    }

    pub(super) fn new(program: &Program, refused: SpawnError) -> Self {
        let command = program.command.to_string_lossy().into_owned();
        let source = io::Error::from_raw_os_error(refused.errno);
        match (refused.at, Errno::from_raw_os_error(refused.errno)) {
            (_, Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
                Self::Limit { command, source }
            }
            (SpawnStep::Cwd, _) => {
                Self::Cwd { command, cwd: program.cwd.clone().unwrap_or_default(), source }
            }
            (_, Errno::TOOBIG) => Self::TooBig { command },
            (SpawnStep::Program, Errno::NOENT | Errno::NOTDIR) => Self::NotFound { command },
            (SpawnStep::Program, Errno::ACCESS | Errno::PERM) => Self::Denied { command },
            (SpawnStep::Program | SpawnStep::Pipes, _) => Self::Other { command, source },
        }
    }
}

/// Failed step of a start, with its errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpawnError {
    pub(super) at: SpawnStep,
    pub(super) errno: i32,
}

impl SpawnError {
    pub(super) fn new(at: SpawnStep, errno: Errno) -> Self {
        Self { at, errno: errno.raw_os_error() }
    }

    pub(super) fn io(at: SpawnStep, error: &io::Error) -> Self {
        let unknown = Errno::IO.raw_os_error();
        Self { at, errno: error.raw_os_error().unwrap_or(unknown) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpawnStep {
    Pipes,
    Cwd,
    Program,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_reported_as_limit_at_every_step() {
        let program = Program { command: "npx".into(), ..Program::default() };
        for errno in [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            for at in [SpawnStep::Pipes, SpawnStep::Cwd, SpawnStep::Program] {
                let error = StartError::new(&program, SpawnError::new(at, errno));
                assert!(matches!(error, StartError::Limit { .. }), "{error:?}");
                assert!(error.to_string().contains("`npx`"), "{error}");
            }
        }
    }

    #[test]
    fn unknown_errno_keeps_the_system_message() {
        let refused = SpawnError::new(SpawnStep::Program, Errno::NOEXEC);
        let error = StartError::new(&Program::default(), refused);
        assert!(error.to_string().contains("format"), "{error}");
    }
}

//! Why a child could not be started.

use std::{io, path::PathBuf};

use rustix::io::Errno;

use super::Program;

/// Why a child could not be started. Nothing of it runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no such program.
    #[error(
        "no program named `{command}` was found on the PATH of its environment; install it, or \
         give its full path"
    )]
    NotFound {
        /// As it was given.
        command: String,
    },
    /// It is there and may not be run.
    #[error("`{command}` may not be executed; make the file executable for this user")]
    Denied {
        /// As it was given.
        command: String,
    },
    /// The folder it should run in cannot be used.
    #[error(
        "the working directory {} of `{command}` cannot be used ({source}); create it, or name \
         another one", cwd.display()
    )]
    Cwd {
        /// As it was given.
        command: String,
        /// The folder.
        cwd: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The arguments and the environment together are longer than the system allows.
    #[error(
        "the arguments and the environment of `{command}` are longer than this system allows; \
         shorten them, or put a long value into a file"
    )]
    TooBig {
        /// As it was given.
        command: String,
    },
    /// The machine, or what this user may have of it, is used up.
    #[error(
        "`{command}` could not be started because a limit is reached ({source}); raise the limits \
         on open files, processes and memory, or keep fewer links"
    )]
    Limit {
        /// As it was given.
        command: String,
        /// Which limit, in the system's words.
        source: io::Error,
    },
    /// There is no warden that could start it.
    #[error("the warden that starts child processes is gone: {reason}; try again")]
    WardenGone {
        /// What became of it.
        reason: String,
    },
    /// [`Processes::close`](super::Processes::close) was called.
    #[error("no child is started any more, because its owner is closing; make a new one")]
    Closed,
    /// Something else, in the system's words.
    #[error("`{command}` could not be started: {source}; run it by hand to see whether it works")]
    Other {
        /// As it was given.
        command: String,
        /// What the system says.
        source: io::Error,
    },
}

impl StartError {
    /// The same for a client, of a server that was named before: without any path.
    pub(crate) fn brief(&self) -> String {
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

    pub(super) fn new(program: &Program, refused: Refused) -> Self {
        let command = program.command.to_string_lossy().into_owned();
        let source = io::Error::from_raw_os_error(refused.errno);
        match (refused.at, Errno::from_raw_os_error(refused.errno)) {
            (_, Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
                Self::Limit { command, source }
            }
            (Step::Cwd, _) => {
                Self::Cwd { command, cwd: program.cwd.clone().unwrap_or_default(), source }
            }
            (_, Errno::TOOBIG) => Self::TooBig { command },
            (Step::Program, Errno::NOENT | Errno::NOTDIR) => Self::NotFound { command },
            (Step::Program, Errno::ACCESS | Errno::PERM) => Self::Denied { command },
            (Step::Program | Step::Pipes, _) => Self::Other { command, source },
        }
    }
}

/// Which step of a start failed, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) at: Step,
    pub(super) errno: i32,
}

impl Refused {
    pub(super) fn new(at: Step, errno: Errno) -> Self {
        Self { at, errno: errno.raw_os_error() }
    }

    pub(super) fn io(at: Step, error: &io::Error) -> Self {
        let unknown = Errno::IO.raw_os_error();
        Self { at, errno: error.raw_os_error().unwrap_or(unknown) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Pipes,
    Cwd,
    Program,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_as_one_wherever_it_is_met() {
        let program = Program { command: "npx".into(), ..Program::default() };
        for errno in [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            for at in [Step::Pipes, Step::Cwd, Step::Program] {
                let error = StartError::new(&program, Refused::new(at, errno));
                assert!(matches!(error, StartError::Limit { .. }), "{error:?}");
                assert!(error.to_string().contains("`npx`"), "{error}");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_passed_on() {
        let refused = Refused::new(Step::Program, Errno::NOEXEC);
        let error = StartError::new(&Program::default(), refused);
        assert!(error.to_string().contains("format"), "{error}");
    }
}

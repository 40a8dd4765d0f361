//! Program to run.

use std::{ffi::OsString, fmt, path::PathBuf};

/// Program with its arguments, environment and working directory.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// Name, searched on the `PATH` of `env`, or path.
    pub command: OsString,
    /// Arguments, without the name of the program.
    pub args: Vec<OsString>,
    /// Complete environment: nothing is inherited. Only the mark is added.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory. `None` is our own.
    pub cwd: Option<PathBuf>,
}

/// Shows neither values of the environment nor arguments, because both carry keys and passwords.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Program")
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &names)
            .field("cwd", &self.cwd)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 8: values of the environment never appear in `Debug`.
    #[test]
    fn debug_shows_no_secrets() {
        let program = Program {
            command: "npx".into(),
            args: vec!["--key=hunter1".into()],
            env: vec![("TOKEN".into(), "hunter2".into())],
            cwd: None,
        };
        let shown = format!("{program:?}");
        assert!(shown.contains("npx") && shown.contains("TOKEN") && !shown.contains("hunter"));
    }
}

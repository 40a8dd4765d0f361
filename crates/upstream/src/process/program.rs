//! What is to be run.

use std::{ffi::OsString, fmt, path::PathBuf};

/// A program with all that it is given.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// Its name, looked for on the `PATH` of `env`, or its path.
    pub command: OsString,
    /// Its arguments, without its name.
    pub args: Vec<OsString>,
    /// Its complete environment: nothing is inherited behind it. Only the mark is added.
    pub env: Vec<(OsString, OsString)>,
    /// Where it runs; here, if not given.
    pub cwd: Option<PathBuf>,
}

/// Shows no values of the environment and no arguments, because both carry keys and passwords.
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
    fn debug_tells_no_secrets() {
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

//! Environment variables, working directory and program of a configuration.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use stayput_sync::Mutex;
use stayput_upstream::{StderrSink, Stdio};

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Source of variables. Passed in, so that tests can have their own.
pub struct Environment {
    variables: Box<Lookup>,
    program: Option<PathBuf>,
    /// Working directory of children without `cwd`, if the environment is that of another process.
    child_cwd: Option<PathBuf>,
    /// All variables, if children get all of them.
    ambient: Option<BTreeMap<String, String>>,
    /// Receiver of the stderr of children.
    stderr: Option<StderrSink>,
    /// Files that the configuration named, readable or not.
    files: Mutex<BTreeSet<PathBuf>>,
    /// Values that were filled in since the last [`Self::take_filled`].
    filled: Mutex<BTreeSet<String>>,
}

impl Environment {
    /// Returns the environment of this process. A variable that is not UTF-8 counts as unset.
    #[must_use]
    pub fn from_process() -> Self {
        let variables = Box::new(|name: &str| std::env::var(name).ok());
        Self::new(variables, std::env::current_exe().ok(), None)
    }

    /// Returns the environment of another process of this program that runs in `cwd`, such as a stdio proxy.
    #[must_use]
    pub fn from_client(variables: BTreeMap<String, String>, cwd: PathBuf) -> Self {
        let variables = Box::new(move |name: &str| variables.get(name).cloned());
        Self::new(variables, std::env::current_exe().ok(), Some(cwd))
    }

    /// Gives children all these variables, not only the usual ones. They are no part of a server's identity.
    #[must_use]
    pub fn with_ambient(self, variables: BTreeMap<String, String>) -> Self {
        Self { ambient: Some(variables), ..self }
    }

    /// Passes the stderr of children to `sink`.
    #[must_use]
    pub fn with_stderr(self, sink: StderrSink) -> Self {
        Self { stderr: Some(sink), ..self }
    }

    /// Returns an environment with these variables, in which `program` runs.
    #[must_use]
    pub fn from_variables(variables: &[(&str, &str)], program: &str) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let known: std::collections::HashMap<String, String> =
            variables.iter().map(owned).collect();
        let variables = Box::new(move |name: &str| known.get(name).cloned());
        Self::new(variables, Some(program.into()), None)
    }

    fn new(variables: Box<Lookup>, program: Option<PathBuf>, child_cwd: Option<PathBuf>) -> Self {
        let (ambient, stderr, files, filled) = Default::default();
        Self { variables, program, child_cwd, ambient, stderr, files, filled }
    }

    /// Records a file that the configuration depends on.
    pub(crate) fn record_file(&self, file: &Path) {
        self.files.lock().insert(file.to_owned());
    }

    /// Records a value that was filled in, because it may be a secret.
    pub(crate) fn record_filled(&self, value: &str) {
        let mut filled = self.filled.lock();
        filled.insert(value.to_owned());
    }

    /// Takes the values that were recorded since the last call.
    pub(crate) fn take_filled(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.filled.lock())
    }

    /// Returns all recorded files.
    pub(crate) fn recorded_files(&self) -> Vec<PathBuf> {
        let files = self.files.lock();
        files.iter().cloned().collect()
    }

    /// Sets the inherited variables of a child, including `names`. Those of another process are copied as they are
    /// now.
    pub(super) fn inherited(&self, stdio: Stdio, names: &[String]) -> Stdio {
        let stdio = match &self.stderr {
            Some(sink) => stdio.stderr(sink.clone()),
            None => stdio,
        };
        if let Some(all) = &self.ambient {
            let owned =
                |(name, value): (&String, &String)| (OsString::from(name), OsString::from(value));
            return stdio.ambient(all.iter().map(owned));
        }
        if self.child_cwd.is_none() {
            return stdio.inherit(names);
        }
        let usual = Stdio::INHERITED.iter().copied();
        let all = usual.chain(names.iter().map(String::as_str));
        all.fold(stdio.inherit_nothing(), |stdio, name| match self.variable(name) {
            // A shell would run a value that is a function definition.
            Some(value) if !value.starts_with("()") => stdio.env(name, escaped(&value)),
            _ => stdio,
        })
    }

    /// Returns the working directory of the process whose environment this is.
    pub(crate) fn cwd(&self) -> Option<PathBuf> {
        self.child_cwd.clone().or_else(|| std::env::current_dir().ok())
    }

    /// Returns the working directory of children without `cwd`, if it differs from that of this process.
    pub(super) fn child_cwd(&self) -> Option<&Path> {
        self.child_cwd.as_deref()
    }

    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.variables)(name)
    }

    /// Returns the path of the running program.
    pub(crate) fn program(&self) -> Option<&str> {
        self.program.as_deref()?.to_str()
    }

    /// Returns the home folder of the user, if it is absolute.
    #[must_use]
    pub fn home(&self) -> Option<PathBuf> {
        self.folder("HOME")
    }

    /// Returns the folder that a variable names, if it is absolute.
    #[must_use]
    pub fn folder(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from).filter(|folder| folder.is_absolute())
    }
}

/// Omits the variables, which are secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("program", &self.program).finish_non_exhaustive()
    }
}

/// Escapes a value, so that a template takes it literally.
pub(crate) fn escaped(value: &str) -> String {
    value.replace("${", "$${")
}

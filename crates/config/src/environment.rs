//! What a configuration takes from around it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use stayput_upstream::Stdio;

use super::expand::escaped;

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Where the values of variables come from. It is given, not read, so that a test has its own.
pub struct Environment {
    variables: Box<Lookup>,
    program: Option<PathBuf>,
    /// Where children start that are not told where, if it is not where this process is: the
    /// environment is that of another process.
    elsewhere: Option<PathBuf>,
    /// The files that a configuration named, whether or not they could be read.
    named: Mutex<BTreeSet<PathBuf>>,
    /// The values that were filled in since they were taken last.
    filled: Mutex<BTreeSet<String>>,
}

impl Environment {
    /// That of this process. A variable that is not UTF-8 counts as one that is not set.
    #[must_use]
    pub fn of_process() -> Self {
        let variables = Box::new(|name: &str| std::env::var(name).ok());
        Self::new(variables, std::env::current_exe().ok(), None)
    }

    /// That of another process of this program, which was started in `cwd`.
    #[must_use]
    pub fn given(variables: BTreeMap<String, String>, cwd: PathBuf) -> Self {
        let variables = Box::new(move |name: &str| variables.get(name).cloned());
        Self::new(variables, std::env::current_exe().ok(), Some(cwd))
    }

    /// One with these variables, in which `program` is running.
    #[must_use]
    pub fn of(variables: &[(&str, &str)], program: &str) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let known: std::collections::HashMap<String, String> =
            variables.iter().map(owned).collect();
        let variables = Box::new(move |name: &str| known.get(name).cloned());
        Self::new(variables, Some(program.into()), None)
    }

    fn new(variables: Box<Lookup>, program: Option<PathBuf>, elsewhere: Option<PathBuf>) -> Self {
        let (named, filled) = Default::default();
        Self { variables, program, elsewhere, named, filled }
    }

    /// A configuration named this file: what it says depends on what is in there.
    pub(crate) fn name_file(&self, file: &Path) {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).insert(file.to_owned());
    }

    /// This value was filled in, and may be a secret.
    pub(crate) fn note_filled(&self, value: &str) {
        let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        filled.insert(value.to_owned());
    }

    /// The values that were filled in since they were taken last.
    pub(crate) fn take_filled(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.filled.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All files that were named so far.
    pub(crate) fn named_files(&self) -> Vec<PathBuf> {
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.iter().cloned().collect()
    }

    /// With what a child gets of the environment, `names` included. What is not our own is given to it
    /// as it is now.
    pub(super) fn inherited(&self, stdio: Stdio, names: &[String]) -> Stdio {
        if self.elsewhere.is_none() {
            return stdio.inherit(names);
        }
        let usual = Stdio::INHERITED.iter().copied();
        let all = usual.chain(names.iter().map(String::as_str));
        all.fold(stdio.inherit_nothing(), |stdio, name| match self.variable(name) {
            // A value that is a shell function would be run by a shell that is the child.
            Some(value) if !value.starts_with("()") => stdio.env(name, escaped(&value)),
            _ => stdio,
        })
    }

    /// Where a child starts that is not told where, if not where we are.
    pub(super) fn elsewhere(&self) -> Option<&Path> {
        self.elsewhere.as_deref()
    }

    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.variables)(name)
    }

    /// The program that is running.
    pub(crate) fn program(&self) -> Option<&str> {
        self.program.as_deref()?.to_str()
    }

    /// The folder of the user, if it can be used as one.
    #[must_use]
    pub fn home(&self) -> Option<PathBuf> {
        self.folder("HOME")
    }

    /// The folder that a variable names. One that depends on where we are is none.
    #[must_use]
    pub fn folder(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from).filter(|folder| folder.is_absolute())
    }
}

/// Values are secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("program", &self.program).finish_non_exhaustive()
    }
}

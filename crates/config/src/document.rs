//! A configuration as it was written.

use std::{
    fmt,
    io::Read as _,
    path::{Path, PathBuf},
};

use stayput_wire::Raw;

use crate::{
    comments,
    environment::Environment,
    error::{ConfigError, Place, Problem},
    expand::Around,
    spot::{Read, Spot, Wrong},
};

/// The most bytes a configuration may have: what is larger is another file.
const SIZE_LIMIT: u64 = 4 << 20;

/// A configuration as it was written, and what stands around it.
pub struct Document {
    text: String,
    origin: PathBuf,
    environment: Environment,
}

impl Document {
    /// The file `path`, in the environment of this process.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let failed = |problem: Problem| ConfigError {
            file: path.to_owned(),
            place: None,
            key: String::new(),
            problem: problem.into(),
        };
        let unreadable = |error: std::io::Error| failed(Problem::Unreadable(error.kind()));
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut bytes = Vec::new();
        file.take(SIZE_LIMIT + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > SIZE_LIMIT {
            return Err(failed(Problem::TooLarge { limit: SIZE_LIMIT }));
        }
        let text = String::from_utf8(bytes).map_err(|_| failed(Problem::NotUtf8))?;
        Ok(Self::new(text, path, Environment::of_process()))
    }

    /// A text which stands in the file `origin`.
    #[must_use]
    pub fn new(text: impl Into<String>, origin: &Path, environment: Environment) -> Self {
        Self { text: text.into(), origin: origin.to_owned(), environment }
    }

    /// The file itself, and those that it was found to depend on when it was read.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = vec![self.origin.clone()];
        files.extend(self.environment.named_files());
        files
    }

    /// What `read` makes of the whole file.
    ///
    /// # Errors
    /// [`ConfigError`] says where in the file what is wrong, and what to do.
    pub fn read<T>(&self, read: impl FnOnce(&Spot<'_>) -> Read<T>) -> Result<T, ConfigError> {
        let text = &*self.text;
        let broken = |at: usize, problem: Problem| {
            self.error(Wrong { at, key: String::new(), problem: problem.into() })
        };
        let plain =
            comments::blanked(text).map_err(|unclosed| broken(unclosed.0, Problem::Comment))?;
        let root = Raw::parse(&plain)
            .map_err(|error| broken(error.at(), Problem::Syntax(error.kind())))?;
        let folder = folder_of(&self.origin);
        let around = Around { environment: &self.environment, folder: &folder };
        read(&Spot::root(root, around)).map_err(|wrong| self.error(wrong))
    }

    /// What is wrong, with its place in this file.
    #[must_use]
    pub fn error(&self, wrong: Wrong) -> ConfigError {
        let Wrong { at, key, problem } = wrong;
        let place = Some(Place::of(&self.text, at));
        ConfigError { file: self.origin.clone(), place, key, problem }
    }
}

/// The folder of a file, from the root on: what is relative to it must stay where it is.
fn folder_of(file: &Path) -> PathBuf {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    whole.parent().map(Path::to_owned).unwrap_or_default()
}

/// Without the text: tokens and passwords stand in it.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({})", self.origin.display())
    }
}

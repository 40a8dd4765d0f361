//! Configuration file before it is parsed.

use std::{
    fmt,
    io::Read as _,
    path::{Path, PathBuf},
};

use stayput_wire::Raw;

use crate::{
    client_file::{self, is_toml},
    environment::Environment,
    error::{ConfigError, Place, Problem},
    expand::ExpandContext,
    jsonc,
    value::{ConfigValue, ReadResult, ValueError},
};

/// Largest configuration file.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// Text of a configuration file, with its path and environment.
pub struct Document {
    text: String,
    origin: PathBuf,
    environment: Environment,
}

impl Document {
    /// Reads the file `path`, with the environment of this process.
    ///
    /// # Errors
    /// Returns an error if the file is not readable.
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
        file.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_CONFIG_BYTES {
            return Err(failed(Problem::TooLarge { limit: MAX_CONFIG_BYTES }));
        }
        let text = String::from_utf8(bytes).map_err(|_| failed(Problem::NotUtf8))?;
        Ok(Self::new(text, path, Environment::from_process()))
    }

    /// Wraps the text of the file `origin`.
    #[must_use]
    pub fn new(text: impl Into<String>, origin: &Path, environment: Environment) -> Self {
        Self { text: text.into(), origin: origin.to_owned(), environment }
    }

    /// Returns the text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }

    /// Returns the file itself and the files that it named when it was read.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = vec![self.origin.clone()];
        files.extend(self.environment.recorded_files());
        files
    }

    /// Parses the file and passes its root value to `read`.
    ///
    /// # Errors
    /// [`ConfigError`] names the place, the problem and the remedy.
    pub fn read<T>(
        &self,
        read: impl FnOnce(&ConfigValue<'_>) -> ReadResult<T>,
    ) -> Result<T, ConfigError> {
        let text = &*self.text;
        let broken = |at: usize, problem: Problem| {
            self.locate(ValueError { at, key: String::new(), problem: problem.into() })
        };
        let plain = match is_toml(&self.origin) {
            true => {
                client_file::toml::to_json(text).map_err(|error| broken(error.at, error.problem))?
            }
            false => {
                jsonc::to_json(text).map_err(|unclosed| broken(unclosed.0, Problem::Comment))?
            }
        };
        let root = Raw::parse(&plain)
            .map_err(|error| broken(error.at(), Problem::Syntax(error.kind())))?;
        let folder = folder_of(&self.origin);
        let context = ExpandContext { environment: &self.environment, folder: &folder };
        read(&ConfigValue::root(root, context)).map_err(|error| self.locate(error))
    }

    /// Adds file, line and column to an error.
    #[must_use]
    pub fn locate(&self, error: ValueError) -> ConfigError {
        let ValueError { at, key, problem } = error;
        // The values of a TOML file have no places in its text, only its syntax errors do.
        let has_place = !is_toml(&self.origin) || matches!(*problem, Problem::Toml(_));
        let place = has_place.then(|| Place::find(&self.text, at));
        ConfigError { file: self.origin.clone(), place, key, problem }
    }
}

/// Returns the absolute folder of a file, so that relative paths do not depend on the working directory.
fn folder_of(file: &Path) -> PathBuf {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    whole.parent().map(Path::to_owned).unwrap_or_default()
}

/// Omits the text, which contains tokens and passwords.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({})", self.origin.display())
    }
}

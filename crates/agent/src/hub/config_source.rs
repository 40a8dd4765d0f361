//! Configuration text of a hub, which is read again at the first use of a server.

use std::path::{Path, PathBuf};

use stayput_config::{ConfigError, Document, ServerEntry, Servers};

/// Configuration text. Variables in it get the values that they have when it is read.
#[derive(Debug)]
pub(crate) struct ConfigSource {
    text: String,
    origin: PathBuf,
}

impl ConfigSource {
    pub(super) fn file(path: &Path) -> Result<Self, ConfigError> {
        Ok(Self { text: Document::load(path)?.into_text(), origin: path.to_owned() })
    }

    pub(super) fn text(text: &str, origin: &Path) -> Self {
        Self { text: text.to_owned(), origin: origin.to_owned() }
    }

    pub(super) fn read(&self) -> Result<Servers, ConfigError> {
        Servers::parse(&self.text, &self.origin)
    }

    /// Reads one server, with the present values of its variables.
    pub(super) fn server(&self, name: &str) -> Result<Option<ServerEntry>, ConfigError> {
        Ok(self.read()?.entries.into_iter().find(|entry| entry.server.name() == name))
    }
}

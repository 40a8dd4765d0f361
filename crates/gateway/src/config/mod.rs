//! Configuration file: the `mcpServers` file of other programs, plus the settings of Stayput.
//!
//! Servers are in `mcpServers`, in the format of other programs. The settings of Stayput are in objects named
//! `stayput`, one at the top level and one in each server, so that other programs ignore them. In these objects an
//! unknown key is an error. Elsewhere unknown keys belong to other programs and are ignored.

mod auth;
mod cluster;
pub(crate) mod command_server;
mod identify;
mod keys;
mod misplaced;
mod observe;
pub(crate) mod reserved_names;
mod seal;
pub(crate) mod server_name;
mod settings;
pub(crate) mod target;
#[cfg(test)]
mod tests;
mod tls;

use std::{
    fmt,
    ops::Deref,
    path::{Path, PathBuf},
};

use stayput_config::{
    ConfigValue, Document, ExpandContext, Member, Problem, ReadResult, Servers, ValueError,
    keys as common,
};
use stayput_stores::Address;

#[cfg(test)]
pub(crate) use self::identify::Hints;
pub(crate) use self::{
    auth::{Auth, JwtRules},
    cluster::{ClusterKey, ClusterSettings},
    identify::{Identify, SessionTools, UnidentifiedPolicy},
    settings::{Limits, Settings, address},
    tls::Tls,
};
pub(crate) use stayput_config::{
    ClaimFilter, ConfigError, Environment, Handles, OnLoss, ServerEntry, ToolFilter,
};

/// JSON Schema of the file.
pub(crate) const SCHEMA: &str = include_str!("../../../../docs/stayput.schema.json");

/// Placeholder for the gateway's settings where servers are named. It is not a valid server name.
pub(crate) const SETTINGS: &str = "(settings)";

/// Validated configuration.
pub(crate) struct Config {
    pub(crate) settings: Settings,
    /// URL of the session store. It can contain a password.
    pub(crate) store: String,
    /// Servers in the order of the file, without disabled ones.
    pub(crate) servers: Vec<ServerEntry>,
    /// Warnings about ignored parts of the file.
    pub(crate) warnings: Vec<String>,
    /// Servers that are disabled because their entry is invalid, each with its error.
    pub(crate) broken: Vec<(String, ConfigError)>,
}

impl Deref for Config {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl Config {
    /// Reads the configuration file `path`, with the environment of this process.
    ///
    /// # Errors
    /// [`ConfigError`] names the place and the problem, and what to do.
    #[cfg(test)]
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_with_files(path).0
    }

    /// Reads the configuration file `path`, with the environment of this process. Also returns all files it depends on,
    /// even if it has errors.
    pub(crate) fn load_with_files(path: &Path) -> (Result<Self, ConfigError>, Vec<PathBuf>) {
        match Document::load(path) {
            Ok(document) => {
                let read = Self::of_document(&document, false);
                (read, document.files())
            }
            Err(error) => (Err(error), vec![path.to_owned()]),
        }
    }

    /// Parses the configuration in `text`, which is from the file `origin`.
    ///
    /// # Errors
    /// [`ConfigError`] names the place and the problem, and what to do.
    pub(crate) fn parse(
        text: &str,
        origin: &Path,
        environment: Environment,
    ) -> Result<Self, ConfigError> {
        Self::of_document(&Document::new(text, origin, environment), false)
    }

    /// Reads the configuration file `path`. If a variable in the settings is unset, the settings are those without any,
    /// and the error is in `broken` under [`SETTINGS`].
    ///
    /// # Errors
    /// Same as [`Config::parse`].
    pub(crate) fn load_forgiving(path: &Path) -> Result<Self, ConfigError> {
        Self::of_document(&Document::load(path)?, true)
    }

    fn of_document(document: &Document, forgiving: bool) -> Result<Self, ConfigError> {
        let (config, broken) = document.read(|root| Self::read_with(root, forgiving))?;
        let broken = broken.into_iter().map(|(name, error)| (name, document.locate(error)));
        Ok(Self { broken: broken.collect(), ..config })
    }

    /// Returns the error of the first server, if no server is usable and one is broken.
    ///
    /// # Errors
    /// See above.
    pub(crate) fn require_usable(mut self) -> Result<Self, ConfigError> {
        match self.servers.is_empty() && !self.broken.is_empty() {
            true => Err(self.broken.remove(0).1),
            false => Ok(self),
        }
    }

    /// Returns all warnings, also those about disabled servers.
    pub(crate) fn all_warnings(&self) -> Vec<String> {
        let broken = self.broken.iter();
        let broken =
            broken.map(|(name, error)| format!("the server `{name}` is disabled: {error}"));
        self.warnings.iter().cloned().chain(broken).collect()
    }

    fn read_with(
        root: &ConfigValue<'_>,
        forgiving: bool,
    ) -> ReadResult<(Self, Vec<(String, ValueError)>)> {
        let file = root.object()?;
        misplaced::check(&file)?;
        let ((settings, store), wrong) = match file.read(common::STAYPUT, Settings::read) {
            Err(wrong) if forgiving && wrong.is_unset() => (Default::default(), Some(wrong)),
            settings => (settings?.unwrap_or_default(), None),
        };
        let ExpandContext { environment, folder } = root.context;
        let own = || settings::default_store(environment, folder);
        let store = store.or_else(own).ok_or_else(|| root.error(Problem::Folder))?;
        let authenticates = !settings.auth.is_none() || wrong.is_some();
        let check = |member: &Member<'_>| {
            reserved_names::check(member)?;
            if authenticates { Ok(()) } else { auth::require_auth_for_visibility(member) }
        };
        let Servers { entries: servers, warnings, mut broken, .. } =
            Servers::read_each(root, &file, check)?;
        broken.extend(wrong.map(|wrong| (SETTINGS.to_owned(), wrong)));
        let config = Self { settings, store, servers, warnings, broken: Vec::new() };
        Ok((config, broken))
    }
}

/// Shows the store without its password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("settings", &self.settings)
            .field("store", &self.store.parse::<Address>())
            .field("servers", &self.servers)
            .field("warnings", &self.warnings)
            .field("broken", &self.broken)
            .finish()
    }
}

//! The configuration: the file that people already have, and what Stayput adds to it.
//!
//! Servers stand in `mcpServers` as other programs write them. What is ours stands in objects that
//! are called `stayput`, one at the top and one in each server, so that no other program stumbles over
//! it. There an unknown key is an error; everywhere else it is somebody else's.

mod auth;
pub(crate) mod command_server;
mod identify;
mod keys;
mod seal;
mod settings;
pub(crate) mod target;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use stayput_config::{
    ConfigValue, Document, ExpandContext, Problem, ReadResult, Servers, ValueError, keys as common,
};
use stayput_core::Expiry;
use stayput_stores::Address;
use stayput_upstream::SealKey;

use self::settings::Settings;
pub(crate) use self::{
    auth::{Auth, JwtRules},
    identify::{CustomSource, Hints, Identify, SessionTools, Unidentified},
    settings::{Limits, address},
};
use crate::observe::ObserveRules;
pub(crate) use stayput_config::{
    ClaimFilter, ConfigError, Environment, Handles, OnLoss, ServerEntry, ToolFilter,
};

/// The JSON Schema of the file.
pub(crate) const SCHEMA: &str = include_str!("../../../../docs/stayput.schema.json");

/// What stands for the settings of the gateway where servers are named. No server can be called so.
pub(crate) const SETTINGS: &str = "(settings)";

/// What a configuration says, checked.
pub(crate) struct Config {
    /// Where the gateway listens.
    pub(crate) listen: SocketAddr,
    /// The URL of the database for sessions. It can hold a password.
    pub(crate) store: String,
    /// The servers in the order of the file, without those that are disabled.
    pub(crate) servers: Vec<ServerEntry>,
    /// Web pages that may speak to the gateway, beside those of this machine.
    pub(crate) allowed_origins: Vec<String>,
    /// Names under which the gateway is reached, beside those of this machine.
    pub(crate) allowed_hosts: Vec<String>,
    /// How long sessions live.
    pub(crate) expiry: Expiry,
    /// How much there may be.
    pub(crate) limits: Limits,
    /// How requests say which session they mean.
    pub(crate) identify: Identify,
    /// Whom the gateway lets in.
    pub(crate) auth: Auth,
    /// The URL under which clients know the gateway.
    pub(crate) public_url: Option<String>,
    /// Who is told of every call.
    pub(crate) watch: ObserveRules,
    /// The keys under which secrets are kept: the first seals, all open. If there is none, one is made.
    pub(crate) seal: Vec<SealKey>,
    /// What was passed over, as sentences.
    pub(crate) warnings: Vec<String>,
}

impl Config {
    /// The configuration in the file `path`, in the environment of this process.
    ///
    /// # Errors
    /// [`ConfigError`] says where in the file what is wrong, and what to do.
    #[cfg(test)]
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_with_files(path).0
    }

    /// The configuration in the file `path`, in the environment of this process, and all files that it depends
    /// on, be it wrong or not.
    pub(crate) fn load_with_files(path: &Path) -> (Result<Self, ConfigError>, Vec<PathBuf>) {
        match Document::load(path) {
            Ok(document) => {
                let read = document.read(Self::read);
                (read, document.files())
            }
            Err(error) => (Err(error), vec![path.to_owned()]),
        }
    }

    /// The configuration in `text`, which stands in the file `origin`.
    ///
    /// # Errors
    /// [`ConfigError`] says where in the file what is wrong, and what to do.
    pub(crate) fn parse(
        text: &str,
        origin: &Path,
        environment: Environment,
    ) -> Result<Self, ConfigError> {
        Document::new(text, origin, environment).read(Self::read)
    }

    /// The configuration in the file `path`, without the servers, and without the settings, that need a variable
    /// which is not set; what is missing is told beside, by server, or by [`SETTINGS`].
    ///
    /// # Errors
    /// As those of [`Config::parse`].
    pub(crate) fn load_forgiving(
        path: &Path,
    ) -> Result<(Self, Vec<(String, ConfigError)>), ConfigError> {
        let document = Document::load(path)?;
        let (config, unset) = document.read(|root| Self::read_with(root, true))?;
        let told = |(name, wrong)| (name, document.locate(wrong));
        Ok((config, unset.into_iter().map(told).collect()))
    }

    fn read(root: &ConfigValue<'_>) -> ReadResult<Self> {
        Ok(Self::read_with(root, false)?.0)
    }

    fn read_with(
        root: &ConfigValue<'_>,
        forgiving: bool,
    ) -> ReadResult<(Self, Vec<(String, ValueError)>)> {
        let file = root.object()?;
        let (settings, wrong) = match file.read(common::STAYPUT, Settings::read) {
            Err(wrong) if forgiving && wrong.is_unset() => (Settings::default(), Some(wrong)),
            settings => (settings?.unwrap_or_default(), None),
        };
        let ExpandContext { environment, folder } = root.context;
        let own = || settings::default_store(environment, folder);
        let store = settings.store.or_else(own).ok_or_else(|| root.error(Problem::Folder))?;
        let read = if forgiving { Servers::read_skipping_unset } else { Servers::read };
        let Servers { entries: found, warnings, mut unset, .. } = read(root, &file)?;
        if settings.auth.is_none() && wrong.is_none() {
            auth::nobody_is_meant(&file)?;
        }
        unset.extend(wrong.map(|wrong| (SETTINGS.to_owned(), wrong)));
        let config = Self {
            listen: settings.listen,
            store,
            servers: found,
            allowed_origins: settings.allowed_origins,
            allowed_hosts: settings.allowed_hosts,
            expiry: settings.expiry,
            limits: settings.limits,
            identify: settings.identify,
            auth: settings.auth,
            public_url: settings.public_url,
            watch: settings.watch,
            seal: settings.seal,
            warnings,
        };
        Ok((config, unset))
    }
}

/// The store is shown without what may be a password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("listen", &self.listen)
            .field("store", &self.store.parse::<Address>())
            .field("servers", &self.servers)
            .field("allowed_origins", &self.allowed_origins)
            .field("allowed_hosts", &self.allowed_hosts)
            .field("expiry", &self.expiry)
            .field("limits", &self.limits)
            .field("identify", &self.identify)
            .field("auth", &self.auth)
            .field("public_url", &self.public_url)
            .field("watch", &self.watch)
            .field("seal", &self.seal)
            .field("warnings", &self.warnings)
            .finish()
    }
}

//! The configuration: the file that people already have, and what Stayput adds to it.
//!
//! Servers stand in `mcpServers` as other programs write them. What is ours stands in objects that
//! are called `stayput`, one at the top and one in each server, so that no other program stumbles over
//! it. There an unknown key is an error; everywhere else it is somebody else's.

mod choices;
mod comments;
mod entry;
mod env_file;
mod environment;
mod error;
mod expand;
mod identify;
mod keys;
mod nearest;
mod settings;
mod spot;
#[cfg(test)]
mod tests;
mod units;

use std::{
    fmt,
    io::Read as _,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use stayput_core::Expiry;
use stayput_stores::Address;
use stayput_upstream::Server;
use stayput_wire::Raw;

use self::{
    choices::Choices,
    error::{Place, Problem},
    expand::Around,
    settings::Settings,
    spot::{Member, Read, Spot, Table},
};
pub(crate) use self::{
    choices::{Handles, OnLoss, Tools},
    environment::Environment,
    error::ConfigError,
    identify::{Also, Hints, Identify, SessionTools, Unidentified},
    settings::{Limits, address},
};

/// The most bytes a configuration may have: what is larger is another file.
const SIZE_LIMIT: u64 = 4 << 20;

/// What a configuration says, checked.
pub(crate) struct Config {
    /// Where the gateway listens.
    pub(crate) listen: SocketAddr,
    /// The URL of the database for sessions. It can hold a password.
    pub(crate) store: String,
    /// The servers in the order of the file, without those that are disabled.
    pub(crate) servers: Vec<Configured>,
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
    /// What was passed over, as sentences.
    pub(crate) warnings: Vec<String>,
}

/// A server, and what the gateway has to know of it beside.
#[derive(Clone, Debug)]
pub(crate) struct Configured {
    /// How it is reached and kept.
    pub(crate) server: Server,
    /// What becomes of calls that a loss has hit.
    pub(crate) on_loss: OnLoss,
    /// Which of its tools are passed on.
    pub(crate) tools: Tools,
    /// Whose clients pass handles as an argument of its tools.
    pub(crate) handles: Handles,
}

impl Config {
    /// The configuration in the file `path`, in the environment of this process.
    ///
    /// # Errors
    /// [`ConfigError`] says where in the file what is wrong, and what to do.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
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
        Self::parse(&text, path, &Environment::of_process())
    }

    /// The configuration in `text`, which stands in the file `origin`.
    ///
    /// # Errors
    /// As for [`Config::load`].
    pub(crate) fn parse(
        text: &str,
        origin: &Path,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let failed = |at: usize, key: String, problem: Box<Problem>| {
            let place = Some(Place::of(text, at));
            ConfigError { file: origin.to_owned(), place, key, problem }
        };
        let broken = |at: usize, problem: Problem| failed(at, String::new(), problem.into());
        let plain =
            comments::blanked(text).map_err(|unclosed| broken(unclosed.0, Problem::Comment))?;
        let root = Raw::parse(&plain)
            .map_err(|error| broken(error.at(), Problem::Syntax(error.kind())))?;
        let folder = folder_of(origin);
        let around = Around { environment, folder: &folder };
        let read = Self::read(&Spot::root(root, around));
        read.map_err(|wrong| failed(wrong.at, wrong.key, wrong.problem))
    }

    fn read(root: &Spot<'_>) -> Read<Self> {
        let file = root.table()?;
        let settings = file.read(keys::STAYPUT, Settings::read)?.unwrap_or_default();
        let Around { environment, folder } = root.around;
        let own = || settings::default_store(environment, folder);
        let store = settings.store.or_else(own).ok_or_else(|| root.wrong(Problem::Folder))?;
        let mut servers = Servers::default();
        for list in keys::SERVERS.into_iter().filter_map(|key| file.get(key)) {
            servers.read(list)?;
        }
        if !servers.listed {
            return Err(root.wrong(Problem::NoServers));
        }
        if servers.found.is_empty() {
            servers.warnings.push("no server is enabled, so there is nothing to serve".to_owned());
        }
        Ok(Self {
            listen: settings.listen,
            store,
            servers: servers.found,
            allowed_origins: settings.allowed_origins,
            allowed_hosts: settings.allowed_hosts,
            expiry: settings.expiry,
            limits: settings.limits,
            identify: settings.identify,
            warnings: servers.warnings,
        })
    }
}

/// The folder of a file, from the root on: what is relative to it must stay where it is.
fn folder_of(file: &Path) -> PathBuf {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    whole.parent().map(Path::to_owned).unwrap_or_default()
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
            .field("warnings", &self.warnings)
            .finish()
    }
}

/// The servers so far.
#[derive(Default)]
struct Servers {
    listed: bool,
    names: Vec<String>,
    found: Vec<Configured>,
    warnings: Vec<String>,
}

impl Servers {
    fn read(&mut self, list: &Spot<'_>) -> Read<()> {
        self.listed = true;
        for member in list.table()?.iter() {
            self.name(member)?;
            let table = member.value.table()?;
            if !entry::is_disabled(&table)? {
                self.add(member, &table)?;
            }
        }
        Ok(())
    }

    fn name(&mut self, member: &Member<'_>) -> Read<()> {
        if !entry::is_name(&member.name) {
            return Err(member.wrong(Problem::Name));
        }
        // Paths are compared in either way, depending on who stands in between.
        let same = self.names.iter().find(|known| known.eq_ignore_ascii_case(&member.name));
        if let Some(other) = same {
            return Err(member.wrong(Problem::SameName { other: other.clone() }));
        }
        self.names.push(member.name.clone().into_owned());
        Ok(())
    }

    fn add(&mut self, member: &Member<'_>, table: &Table<'_>) -> Read<()> {
        let choices = table.read(keys::STAYPUT, Choices::read)?.unwrap_or_default();
        let name = &*member.name;
        let Some(transport) = entry::transport(member, table, &choices.inherit)? else {
            self.warnings.push(format!("the server {name:?} is Stayput itself; it is left out"));
            return Ok(());
        };
        let server = Server::with(name, transport, choices.options)
            .map_err(|error| member.wrong(Problem::Server(error.problem().clone())))?;
        let (idle, why) = match server.is_process() {
            true => (choices.only_url, "is started as a process"),
            false => (choices.only_process, "is reached by a URL"),
        };
        for key in idle {
            self.warnings
                .push(format!("{key:?} has no effect on the server {name:?}, which {why}"));
        }
        let Choices { on_loss, tools, handles, .. } = choices;
        self.found.push(Configured { server, on_loss, tools, handles });
        Ok(())
    }
}

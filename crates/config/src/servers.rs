//! Servers of a configuration.

use std::path::Path;

use stayput_upstream::Server;

use crate::{
    claim_filter::ClaimFilter,
    document::Document,
    environment::Environment,
    error::{ConfigError, Problem},
    keys,
    server_options::{Handles, OnLoss, ServerOptions},
    tool_filter::ToolFilter,
    transport,
    value::{ConfigObject, ConfigValue, Member, ReadResult, ValueError},
};

/// Servers of a configuration, validated.
#[derive(Debug, Default)]
pub struct Servers {
    /// Enabled servers in the order of the file.
    pub entries: Vec<ServerEntry>,
    /// Warnings about ignored entries and keys, as sentences.
    pub warnings: Vec<String>,
    /// Servers skipped because a variable is unset, each with its error.
    pub unset: Vec<(String, ValueError)>,
    skip_unset: bool,
    listed: bool,
    names: Vec<String>,
}

/// Server with its gateway options.
#[derive(Clone, Debug)]
pub struct ServerEntry {
    /// Transport and upstream options.
    pub server: Server,
    /// Reaction to calls that a loss affects.
    pub on_loss: OnLoss,
    /// Tools that may be used.
    pub tools: ToolFilter,
    /// Clients that pass the handle as an argument of its tools.
    pub handles: Handles,
    /// Claims that an owner needs to use the server.
    pub claims: ClaimFilter,
}

impl Servers {
    /// Reads the servers of the file `path`, with the environment of this process. Gateway settings in the file are
    /// ignored.
    ///
    /// # Errors
    /// [`ConfigError`] names the place, the problem and the remedy.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let servers = Document::load(path)?.read(|root| Self::read(root, &root.object()?))?;
        tracing::debug!(file = %path.display(), servers = servers.names.len(), "configuration read");
        Ok(servers)
    }

    /// Reads the servers of a text as if it were the file `origin`.
    ///
    /// # Errors
    /// Fails like [`Servers::load`].
    pub fn parse(text: &str, origin: &Path) -> Result<Self, ConfigError> {
        let document = Document::new(text, origin, Environment::from_process());
        document.read(|root| Self::read(root, &root.object()?))
    }

    /// Reads the servers of a parsed file, whose members are `file`.
    ///
    /// # Errors
    /// Returns an error if there are no servers, or one is invalid.
    pub fn read(root: &ConfigValue<'_>, file: &ConfigObject<'_>) -> ReadResult<Self> {
        Self::default().fill(root, file)
    }

    /// Does the same, but skips servers that need an unset variable. They are in [`Servers::unset`].
    ///
    /// # Errors
    /// Returns an error if there are no servers, or one is invalid.
    pub fn read_skipping_unset(
        root: &ConfigValue<'_>,
        file: &ConfigObject<'_>,
    ) -> ReadResult<Self> {
        Self { skip_unset: true, ..Self::default() }.fill(root, file)
    }

    fn fill(self, root: &ConfigValue<'_>, file: &ConfigObject<'_>) -> ReadResult<Self> {
        let mut servers = self;
        for list in keys::SERVERS.into_iter().filter_map(|key| file.get(key)) {
            servers.add_list(list)?;
        }
        if !servers.listed {
            return Err(root.error(Problem::NoServers));
        }
        if servers.entries.is_empty() && servers.unset.is_empty() {
            servers.warnings.push("no server is enabled, so there is nothing to serve".to_owned());
        }
        Ok(servers)
    }

    fn add_list(&mut self, list: &ConfigValue<'_>) -> ReadResult<()> {
        self.listed = true;
        for member in list.object()?.iter() {
            self.check_name(member)?;
            let object = member.value.object()?;
            if transport::is_disabled(&object)? {
                continue;
            }
            match self.add(member, &object) {
                Err(error) if self.skip_unset && error.is_unset() => {
                    self.unset.push((member.name.clone().into_owned(), error));
                }
                added => added?,
            }
        }
        Ok(())
    }

    fn check_name(&mut self, member: &Member<'_>) -> ReadResult<()> {
        if !transport::is_name(&member.name) {
            return Err(member.error(Problem::Name));
        }
        // Names are part of URLs, which some proxies compare without letter case.
        let same = self.names.iter().find(|known| known.eq_ignore_ascii_case(&member.name));
        if let Some(other) = same {
            return Err(member.error(Problem::SameName { other: other.clone() }));
        }
        self.names.push(member.name.clone().into_owned());
        Ok(())
    }

    fn add(&mut self, member: &Member<'_>, object: &ConfigObject<'_>) -> ReadResult<()> {
        let options = object.read(keys::STAYPUT, ServerOptions::read)?.unwrap_or_default();
        let name = &*member.name;
        let Some(transport) = transport::transport(member, object, &options.inherit)? else {
            self.warnings.push(format!("the server {name:?} is Stayput itself; it is left out"));
            return Ok(());
        };
        let server = Server::with(name, transport, options.upstream)
            .map_err(|error| member.error(Problem::Server(error.problem().clone())))?;
        let (ignored, reason) = match server.is_process() {
            true => (options.only_url, "is started as a process"),
            false => (options.only_process, "is reached by a URL"),
        };
        for key in ignored {
            self.warnings
                .push(format!("{key:?} has no effect on the server {name:?}, which {reason}"));
        }
        let ServerOptions { on_loss, tools, handles, claims, .. } = options;
        self.entries.push(ServerEntry { server, on_loss, tools, handles, claims });
        Ok(())
    }
}

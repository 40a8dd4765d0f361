//! Servers of a configuration.

use std::path::Path;

use stayput_upstream::{Server, ServerProblem, misspelt};

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
    /// Servers with an invalid entry, each with its error. They are disabled.
    pub broken: Vec<(String, ValueError)>,
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

/// Returns the lists of servers of a file, and whether each is of a project. Of the projects of Claude Code only the
/// one of the working directory counts.
fn lists<'a>(
    root: &ConfigValue<'a>,
    file: &ConfigObject<'a>,
) -> ReadResult<Vec<(bool, ConfigObject<'a>)>> {
    let mut lists = Vec::new();
    let cwd = root.context.environment.cwd();
    let is_here = |member: &&Member<'_>| cwd.as_deref() == Some(Path::new(&*member.name));
    if let Some(projects) = file.get(keys::PROJECTS).filter(|it| it.is_object()) {
        let projects = projects.object()?;
        let project = projects.iter().find(is_here).filter(|it| it.value.is_object());
        let project = project.map(|it| it.value.object()).transpose()?;
        if let Some(list) = project.as_ref().and_then(|it| it.get(keys::SERVERS[0])) {
            lists.push((true, list.object()?));
        }
    }
    let names = keys::SERVERS.into_iter().chain([keys::CODEX_SERVERS]);
    for list in names.filter_map(|key| file.get(key)) {
        lists.push((false, list.object()?));
    }
    if let Some(list) = file.get(keys::OPENCODE_SERVERS).filter(|it| it.is_object()) {
        let list = list.object()?;
        match list.get(keys::SERVERS[1]).filter(|it| it.is_object()) {
            // Settings of an older VS Code.
            Some(nested) => lists.push((false, nested.object()?)),
            None if list.iter().any(|it| it.value.is_object()) => {
                lists.push((false, list.objects_only()));
            }
            None => {}
        }
    }
    Ok(lists)
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
        let mut servers = Self::read_each(root, file, |_| Ok(()))?;
        match servers.broken.is_empty() {
            true => Ok(servers),
            false => Err(servers.broken.remove(0).1),
        }
    }

    /// Reads the servers as [`Servers::read`]. An invalid server only disables itself: it is in [`Servers::broken`]. `check` may refuse a
    /// server for further reasons.
    ///
    /// # Errors
    /// Returns an error if there is no list of servers.
    pub fn read_each(
        root: &ConfigValue<'_>,
        file: &ConfigObject<'_>,
        check: impl Fn(&Member<'_>) -> ReadResult<()>,
    ) -> ReadResult<Self> {
        let mut servers = Self::default();
        let mut near = Vec::new();
        for (is_project, list) in lists(root, file)? {
            servers.listed = true;
            for member in list.iter() {
                // A server of the project comes before one of the user with the same name.
                if is_project {
                    near.push(member.name.clone());
                } else if near.contains(&member.name) {
                    continue;
                }
                if let Err(error) = servers.read_entry(member, &check) {
                    servers.broken.push((member.name.clone().into_owned(), error));
                }
            }
        }
        if !servers.listed {
            let typo = file.iter().find_map(|it| Some((it, misspelt(&it.name, &keys::SERVERS)?)));
            return Err(match typo {
                Some((typo, nearest)) => typo.error(Problem::UnknownKey { nearest }),
                None => root.error(Problem::NoServers),
            });
        }
        if servers.entries.is_empty() && servers.broken.is_empty() {
            servers.warnings.push(
                "no server is enabled, so there is nothing to serve: add one to `mcpServers`"
                    .to_owned(),
            );
        }
        Ok(servers)
    }

    fn read_entry(
        &mut self,
        member: &Member<'_>,
        check: impl Fn(&Member<'_>) -> ReadResult<()>,
    ) -> ReadResult<()> {
        self.check_name(member)?;
        let object = member.value.object()?;
        if transport::is_disabled(&object)? {
            return Ok(());
        }
        // Beside `stayput` it would be ignored.
        let belongs_inside = |it: &&Member<'_>| {
            keys::SERVER.contains(&&*it.name) && !keys::ALSO_OF_OTHERS.contains(&&*it.name)
        };
        if let Some(own) = object.iter().find(belongs_inside) {
            return Err(own.error(Problem::Misplaced { place: "server" }));
        }
        let Some(entry) = self.entry(member, &object)? else { return Ok(()) };
        check(member)?;
        self.entries.push(entry);
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

    /// Reads an entry; `None` if the server is Stayput itself.
    fn entry(
        &mut self,
        member: &Member<'_>,
        object: &ConfigObject<'_>,
    ) -> ReadResult<Option<ServerEntry>> {
        let options = object.read(keys::STAYPUT, ServerOptions::read)?.unwrap_or_default();
        let name = &*member.name;
        let Some(transport) = transport::transport(member, object, &options)? else {
            self.warnings.push(format!("the server {name:?} is Stayput itself; it is left out"));
            return Ok(None);
        };
        let server = Server::with(name, transport, options.upstream)
            .map_err(|error| member.error(Problem::Server(error.problem().clone())))?;
        if options.has_warm && !server.is_process() {
            return Err(member.error(Problem::Server(ServerProblem::WarmUrl)));
        }
        let (ignored, reason) = match server.is_process() {
            true => (options.only_url, "is started as a process"),
            false => (options.only_process, "is reached by a URL"),
        };
        for key in ignored {
            self.warnings
                .push(format!("{key:?} has no effect on the server {name:?}, which {reason}"));
        }
        let ServerOptions { on_loss, tools, handles, claims, .. } = options;
        Ok(Some(ServerEntry { server, on_loss, tools, handles, claims }))
    }
}

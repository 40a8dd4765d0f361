//! The servers of a configuration.

use std::path::Path;

use stayput_upstream::Server;

use crate::{
    admission::For,
    choices::{Choices, Handles, OnLoss},
    document::Document,
    entry,
    environment::Environment,
    error::{ConfigError, Problem},
    keys,
    spot::{Member, Read, Spot, Table, Wrong},
    tools::Tools,
};

/// The servers of a configuration, checked.
#[derive(Debug, Default)]
pub struct Servers {
    /// In the order of the file, without those that are disabled.
    pub found: Vec<Configured>,
    /// What was passed over, as sentences.
    pub warnings: Vec<String>,
    /// Servers that were passed over because a variable is not set, and what is wrong with each.
    pub unset: Vec<(String, Wrong)>,
    forgiving: bool,
    listed: bool,
    names: Vec<String>,
}

/// A server, and what was chosen for it beside.
#[derive(Clone, Debug)]
pub struct Configured {
    /// How it is reached and kept.
    pub server: Server,
    /// What becomes of calls that a loss has hit.
    pub on_loss: OnLoss,
    /// Which of its tools may be used.
    pub tools: Tools,
    /// Whose clients pass handles as an argument of its tools.
    pub handles: Handles,
    /// Whom it is for.
    pub whom: For,
}

impl Servers {
    /// The servers in the file `path`, in the environment of this process. Settings at the top of the file
    /// are for the gateway and are not looked at.
    ///
    /// # Errors
    /// [`ConfigError`] says where in the file what is wrong, and what to do.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Document::load(path)?.read(|root| Self::read(root, &root.table()?))
    }

    /// The same of a text which stands in the file `origin`, or could.
    ///
    /// # Errors
    /// As for [`Servers::load`].
    pub fn parse(text: &str, origin: &Path) -> Result<Self, ConfigError> {
        let document = Document::new(text, origin, Environment::of_process());
        document.read(|root| Self::read(root, &root.table()?))
    }

    /// The servers of a file, whose members are `file`.
    ///
    /// # Errors
    /// If there are none, or one of them is written wrong.
    pub fn read(root: &Spot<'_>, file: &Table<'_>) -> Read<Self> {
        Self::default().fill(root, file)
    }

    /// The same, but a server that needs a variable which is not set is passed over: it is in
    /// [`Servers::unset`].
    ///
    /// # Errors
    /// If there are none, or one of them is written wrong.
    pub fn read_forgiving(root: &Spot<'_>, file: &Table<'_>) -> Read<Self> {
        Self { forgiving: true, ..Self::default() }.fill(root, file)
    }

    fn fill(self, root: &Spot<'_>, file: &Table<'_>) -> Read<Self> {
        let mut servers = self;
        for list in keys::SERVERS.into_iter().filter_map(|key| file.get(key)) {
            servers.take(list)?;
        }
        if !servers.listed {
            return Err(root.wrong(Problem::NoServers));
        }
        if servers.found.is_empty() && servers.unset.is_empty() {
            servers.warnings.push("no server is enabled, so there is nothing to serve".to_owned());
        }
        Ok(servers)
    }

    fn take(&mut self, list: &Spot<'_>) -> Read<()> {
        self.listed = true;
        for member in list.table()?.iter() {
            self.name(member)?;
            let table = member.value.table()?;
            if entry::is_disabled(&table)? {
                continue;
            }
            match self.add(member, &table) {
                Err(wrong) if self.forgiving && wrong.is_unset() => {
                    self.unset.push((member.name.clone().into_owned(), wrong));
                }
                added => added?,
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
        let Choices { on_loss, tools, handles, whom, .. } = choices;
        self.found.push(Configured { server, on_loss, tools, handles, whom });
        Ok(())
    }
}

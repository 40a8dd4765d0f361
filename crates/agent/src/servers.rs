//! The servers of a hub.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use serde::Serialize;
use stayput_config::{Configured, OnLoss, Tools};
use stayput_core::Agent;
use stayput_upstream::{Options, Server, Transport};

use crate::{Error, Hub};

/// A server, and what was chosen for it beside.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) server: Server,
    /// The name it is known by to links and records, shared.
    pub(crate) name: Arc<str>,
    pub(crate) on_loss: OnLoss,
    pub(crate) tools: Tools,
}

impl Entry {
    pub(crate) fn new(server: Server) -> Self {
        let name = server.name().into();
        Self { server, name, on_loss: OnLoss::default(), tools: Tools::default() }
    }
}

impl From<Configured> for Entry {
    fn from(configured: Configured) -> Self {
        let Configured { server, on_loss, tools, .. } = configured;
        Self { on_loss, tools, ..Self::new(server) }
    }
}

/// The servers of each agent, by the names that the agent has for them.
#[derive(Debug, Default)]
pub(crate) struct Servers(RwLock<BTreeMap<Agent, BTreeMap<String, Arc<Entry>>>>);

/// What is between the name that an agent has for a server and the agent's own.
const BY_AGENT: &str = "_byagent_";

impl Servers {
    fn read(
        &self,
    ) -> std::sync::RwLockReadGuard<'_, BTreeMap<Agent, BTreeMap<String, Arc<Entry>>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a server, or replaces the one of this name, which is given back.
    pub(crate) fn insert(&self, agent: &Agent, name: &str, entry: Entry) -> Option<Arc<Entry>> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.entry(agent.clone()).or_default().insert(name.to_owned(), Arc::new(entry))
    }

    fn remove(&self, agent: &Agent, name: &str) -> Option<Arc<Entry>> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.get_mut(agent)?.remove(name)
    }

    /// What an agent means by a name: a server of its own, else one of the hub.
    fn find(&self, agent: &Agent, name: &str) -> Option<Arc<Entry>> {
        let all = self.read();
        let of = |agent: &Agent| all.get(agent)?.get(name).cloned();
        of(agent).or_else(|| of(&Agent::none()))
    }

    fn names(&self, agent: &Agent) -> Vec<String> {
        let all = self.read();
        let of = |agent: &Agent| all.get(agent).into_iter().flat_map(BTreeMap::keys).cloned();
        let mut names: Vec<_> = of(agent).chain(of(&Agent::none())).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Refuses names that could be taken for those of an agent's servers.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if name.contains(BY_AGENT) {
        return Err(Error::Invalid(format!("`{BY_AGENT}` cannot be part of a server's name")));
    }
    Ok(())
}

impl Hub {
    /// Adds a server, or replaces the one of this name: what was open on that one is closed, and whoever
    /// used it is told of the loss.
    ///
    /// # Errors
    /// If something about it is wrong as it is written.
    pub async fn add_server(
        &self,
        name: &str,
        transport: impl Into<Transport>,
        options: Options,
    ) -> Result<(), Error> {
        self.inner.check_open()?;
        check_name(name)?;
        let server = Server::with(&self.global_name(name), transport, options)?;
        self.put(name, Entry::new(server)).await;
        Ok(())
    }

    /// The same for a server as a file has it: `entry` is what stands under its name in `mcpServers`, an object. What is
    /// relative in it is so to the folder of `origin`, which errors name. Says what was passed over, as sentences.
    ///
    /// # Errors
    /// If something in it is wrong, or it is disabled.
    pub async fn add_configured(
        &self,
        name: &str,
        entry: impl Serialize,
        origin: impl AsRef<Path>,
    ) -> Result<Vec<String>, Error> {
        self.inner.check_open()?;
        check_name(name)?;
        let file = BTreeMap::from([("mcpServers", BTreeMap::from([(name, entry)]))]);
        let file = serde_json::to_string(&file).map_err(Error::invalid)?;
        let servers = stayput_config::Servers::parse(&file, origin.as_ref())?;
        let Some(found) = servers.found.into_iter().next() else {
            // The last one says that there is nothing else.
            let why = match &servers.warnings[..] {
                [why, _, ..] => why,
                _ => "it is disabled",
            };
            return Err(Error::Invalid(format!("the server `{name}` cannot be added: {why}")));
        };
        let entry = Entry::from(found);
        let server = entry.server.renamed(&self.global_name(name))?;
        self.put(name, Entry { name: server.shared_name(), server, ..entry }).await;
        Ok(servers.warnings)
    }

    /// Closes what was open on the one that it replaces, if that is another one.
    async fn put(&self, name: &str, entry: Entry) {
        let server = entry.server.clone();
        let before = self.inner.servers.insert(&self.agent, name, entry);
        let changed = |before: Arc<Entry>| before.server.configuration() != server.configuration();
        if before.is_some_and(changed) {
            let links = self.inner.links.clone();
            let closing = async move { links.reconfigure(server.name(), Some(&server)).await };
            self.inner.home.at_home(closing).await;
        }
    }

    /// Chooses what becomes of calls to a server that a loss of state has hit. As long as nothing is chosen they
    /// fail, and the agent decides.
    ///
    /// # Errors
    /// If there is no such server.
    pub fn on_loss(&self, name: &str, on_loss: OnLoss) -> Result<(), Error> {
        let known = self.entry(name)?;
        let own =
            self.inner.servers.read().get(&self.agent).is_some_and(|it| it.contains_key(name));
        let agent = if own { self.agent.clone() } else { Agent::none() };
        self.inner.servers.insert(&agent, name, Entry { on_loss, ..Entry::clone(&known) });
        Ok(())
    }

    /// Removes a server and closes what was open on it. Says whether there was one.
    pub async fn remove_server(&self, name: &str) -> bool {
        let before = self.inner.servers.remove(&self.agent, name);
        if let Some(before) = before.as_ref().filter(|_| self.inner.home.is_here()) {
            let closing = self.inner.links.reconfigure(before.server.name(), None);
            self.inner.home.at_home(closing).await;
        }
        before.is_some()
    }

    /// The names of all servers that this agent can use.
    #[must_use]
    pub fn server_names(&self) -> Vec<String> {
        self.inner.servers.names(&self.agent)
    }

    pub(crate) fn entry(&self, name: &str) -> Result<Arc<Entry>, Error> {
        self.inner.servers.find(&self.agent, name).ok_or_else(|| {
            let known = self.server_names();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Error::UnknownServer { server: name.to_owned(), known }
        })
    }

    pub(crate) fn server(&self, name: &str) -> Result<Server, Error> {
        Ok(self.entry(name)?.server.clone())
    }

    /// Two agents may call different servers by one name.
    fn global_name(&self, name: &str) -> String {
        match self.agent.as_str() {
            "" => name.to_owned(),
            agent => format!("{name}{BY_AGENT}{agent}"),
        }
    }
}

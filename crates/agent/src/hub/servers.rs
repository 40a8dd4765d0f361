//! Servers of a hub and of its agents.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use serde::Serialize;
use stayput_config::{OnLoss, ServerEntry, ToolFilter};
use stayput_core::Agent;
use stayput_sync::RwLock;
use stayput_upstream::{Options, Server, TransportConfig};

use super::{
    Hub,
    config_source::ConfigSource,
    gateway::{Gateway, can_be_server},
    headers::HeaderTable,
    stderr::StderrCallback,
};
use crate::Error;

/// A server and its settings in the hub.
#[derive(Clone, Debug)]
pub(crate) struct HubServer {
    pub(crate) server: Server,
    /// Name in links and session records.
    pub(crate) name: Arc<str>,
    pub(crate) on_loss: OnLoss,
    pub(crate) tools: ToolFilter,
    /// Configuration that is read again at the first use. `None` after that.
    pub(crate) source: Option<Arc<ConfigSource>>,
}

impl HubServer {
    pub(crate) fn new(server: Server) -> Self {
        let (name, on_loss, tools) = (server.name().into(), OnLoss::default(), Default::default());
        Self { server, name, on_loss, tools, source: None }
    }
}

/// Callbacks that each server of a hub gets.
#[derive(Debug, Default)]
pub(crate) struct ServerHooks {
    /// Callbacks for headers of HTTP servers, if there are any.
    pub(crate) headers: Option<Arc<HeaderTable>>,
    pub(crate) stderr: Option<StderrCallback>,
}

impl ServerHooks {
    /// Returns the server with the callbacks. `local_name` is its name for the agent.
    pub(crate) fn apply(&self, server: Server, local_name: &str) -> Server {
        let server = match &self.headers {
            Some(headers) => headers.apply(&server, local_name),
            None => server,
        };
        match &self.stderr {
            Some(stderr) => stderr.apply(&server, local_name),
            None => server,
        }
    }
}

impl From<ServerEntry> for HubServer {
    fn from(configured: ServerEntry) -> Self {
        let ServerEntry { server, on_loss, tools, .. } = configured;
        Self { on_loss, tools, ..Self::new(server) }
    }
}

/// Servers by agent and by the name that the agent uses.
#[derive(Debug, Default)]
pub(crate) struct Servers(RwLock<BTreeMap<Agent, BTreeMap<String, Arc<HubServer>>>>);

/// Separator between a server's name and the agent that added it.
const AGENT_SEPARATOR: &str = "_byagent_";

impl Servers {
    /// Adds a server. Returns the one that had this name before.
    pub(crate) fn insert(
        &self,
        agent: &Agent,
        name: &str,
        entry: HubServer,
    ) -> Option<Arc<HubServer>> {
        let mut all = self.0.write();
        all.entry(agent.clone()).or_default().insert(name.to_owned(), Arc::new(entry))
    }

    pub(crate) fn remove(&self, agent: &Agent, name: &str) -> Option<Arc<HubServer>> {
        let mut all = self.0.write();
        all.get_mut(agent)?.remove(name)
    }

    /// Looks up a server of the agent, else one of the hub.
    fn find(&self, agent: &Agent, name: &str) -> Option<Arc<HubServer>> {
        let all = self.0.read();
        let find = |agent: &Agent| all.get(agent)?.get(name).cloned();
        find(agent).or_else(|| find(&Agent::none()))
    }

    /// Whether any agent, or the hub itself, has a server of this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.read().values().any(|servers| servers.contains_key(name))
    }

    /// Returns the servers of all agents.
    pub(crate) fn all(&self) -> Vec<Arc<HubServer>> {
        self.0.read().values().flat_map(|servers| servers.values().cloned()).collect()
    }

    /// Looks up a server by its name in links and session records.
    pub(crate) fn find_global(&self, name: &str) -> Option<Server> {
        let all = self.0.read();
        let mut servers = all.values().flat_map(BTreeMap::values);
        servers.find(|it| &*it.name == name).map(|it| it.server.clone())
    }

    fn names(&self, agent: &Agent) -> Vec<String> {
        let all = self.0.read();
        let names = |agent: &Agent| all.get(agent).into_iter().flat_map(BTreeMap::keys).cloned();
        let mut names: Vec<_> = names(agent).chain(names(&Agent::none())).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Refuses names that could be mistaken for the global name of an agent's server.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if name.contains(AGENT_SEPARATOR) {
        return Err(Error::InvalidInput(format!(
            "`{AGENT_SEPARATOR}` cannot be part of a server's name"
        )));
    }
    Ok(())
}

impl Hub {
    /// Adds a server, or replaces the one of this name. The links of a replaced server are closed, and the sessions
    /// that used it get a [`StateLost`](crate::StateLost). `options.warm` processes are started at once.
    ///
    /// # Errors
    /// If its configuration is wrong.
    pub async fn add_server(
        &self,
        name: &str,
        transport: impl Into<TransportConfig>,
        options: Options,
    ) -> Result<(), Error> {
        self.inner.check_open()?;
        check_name(name)?;
        let server = Server::with(&self.global_name(name), transport, options)?;
        self.insert_server(name, HubServer::new(server)).await;
        Ok(())
    }

    /// Adds a server from an entry of `mcpServers`, an object. Relative paths in it are resolved against the folder
    /// of `origin`, the path that errors mention. Returns warnings about ignored settings, as sentences.
    ///
    /// # Errors
    /// If the entry is wrong or disabled.
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
        let Some(found) = servers.entries.into_iter().next() else {
            // The last warning only says that no server is left.
            let reason = match &servers.warnings[..] {
                [reason, _, ..] => reason,
                _ => "it is disabled",
            };
            return Err(Error::InvalidInput(format!(
                "the server `{name}` cannot be added: {reason}"
            )));
        };
        let entry = HubServer::from(found);
        let server = entry.server.renamed(&self.global_name(name))?;
        self.insert_server(name, HubServer { name: server.shared_name(), server, ..entry }).await;
        Ok(servers.warnings)
    }

    /// Adds a server. Closes the links of the one that it replaces if the configuration differs.
    async fn insert_server(&self, name: &str, mut entry: HubServer) {
        entry.server = self.inner.hooks.apply(entry.server, name);
        let server = entry.server.clone();
        let replaced = self.inner.servers.insert(&self.agent, name, entry);
        let changed =
            |replaced: Arc<HubServer>| replaced.server.configuration() != server.configuration();
        if replaced.is_some_and(changed) {
            let (links, server) = (self.inner.links.clone(), server.clone());
            let closing = async move { links.reconfigure(server.name(), Some(&server)).await };
            self.inner.thread.in_runtime(closing).await;
        }
        self.inner.links.warm(&server);
    }

    /// Sets how calls to a server react to a loss of state. By default they fail, and the agent decides.
    ///
    /// # Errors
    /// If there is no such server.
    pub fn on_loss(&self, name: &str, on_loss: OnLoss) -> Result<(), Error> {
        let known = self.entry(name)?;
        let own =
            self.inner.servers.0.read().get(&self.agent).is_some_and(|it| it.contains_key(name));
        let agent = if own { self.agent.clone() } else { Agent::none() };
        self.inner.servers.insert(&agent, name, HubServer { on_loss, ..HubServer::clone(&known) });
        Ok(())
    }

    /// Removes a server and closes its links. Returns `false` if there is no such server.
    pub async fn remove_server(&self, name: &str) -> bool {
        let removed = self.inner.servers.remove(&self.agent, name);
        if let Some(removed) = removed.as_ref().filter(|_| self.inner.thread.is_own_process()) {
            let closing = self.inner.links.reconfigure(removed.server.name(), None);
            self.inner.thread.in_runtime(closing).await;
        }
        removed.is_some()
    }

    /// Names of all servers that this agent can use.
    #[must_use]
    pub fn server_names(&self) -> Vec<String> {
        self.inner.servers.names(&self.agent)
    }

    pub(crate) fn entry(&self, name: &str) -> Result<Arc<HubServer>, Error> {
        match (self.inner.servers.find(&self.agent, name), &self.inner.gateway) {
            (Some(found), _) => self.resolved(found, name),
            (None, Some(gateway)) if can_be_server(name) => self.gateway_server(gateway, name),
            (None, _) => Err(self.unknown_server(name)),
        }
    }

    /// Reads the configuration of a server again at its first use, so that its variables have their present values.
    fn resolved(&self, known: Arc<HubServer>, name: &str) -> Result<Arc<HubServer>, Error> {
        let Some(source) = &known.source else { return Ok(known) };
        let mut entry = HubServer { source: None, ..HubServer::clone(&known) };
        if let Some(read) = source.server(name)? {
            let server = self.inner.hooks.apply(read.server, name);
            if server.configuration() != known.server.configuration() {
                entry.server = server;
            }
        }
        self.inner.servers.insert(&Agent::none(), name, entry.clone());
        Ok(Arc::new(entry))
    }

    /// Adds a server of the gateway at its first use. The gateway knows whether it exists.
    fn gateway_server(&self, gateway: &Gateway, name: &str) -> Result<Arc<HubServer>, Error> {
        let mut entry = gateway.server(name)?;
        entry.server = self.inner.hooks.apply(entry.server, name);
        self.inner.servers.insert(&Agent::none(), name, entry);
        let added = self.inner.servers.find(&Agent::none(), name);
        added.ok_or_else(|| self.unknown_server(name))
    }

    /// Refuses a name that is no server of any agent of this hub. A hub over a gateway refuses only what can be no name;
    /// [`Hub::confirm_server`] asks the gateway.
    pub(crate) fn check_server_exists(&self, name: &str) -> Result<(), Error> {
        let may_be_at_gateway = self.inner.gateway.is_some() && can_be_server(name);
        if may_be_at_gateway || self.inner.servers.contains(name) {
            Ok(())
        } else {
            Err(self.unknown_server(name))
        }
    }

    pub(super) fn unknown_server(&self, name: &str) -> Error {
        let known = self.server_names();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Error::UnknownServer { server: name.to_owned(), known }
    }

    pub(crate) fn server(&self, name: &str) -> Result<Server, Error> {
        Ok(self.entry(name)?.server.clone())
    }

    /// Name of the agent's server in links and records: two agents can use one name for different servers.
    fn global_name(&self, name: &str) -> String {
        match self.agent.as_str() {
            "" => name.to_owned(),
            agent => format!("{name}{AGENT_SEPARATOR}{agent}"),
        }
    }
}

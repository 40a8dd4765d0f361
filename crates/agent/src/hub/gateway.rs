//! Hub over a running gateway: its sessions are the gateway's, so several processes share them by name.

use std::{collections::BTreeSet, sync::Arc};

use stayput_core::{Agent, Generation, Key, Record};
use stayput_sync::Mutex;
use stayput_upstream::{
    Answer, Delivery, EraChoice, Http, Isolation, LinkOpenError, Options, Server,
};
use stayput_wire::{Code, Raw, meta};

use super::{Hub, HubInner, servers::HubServer};
use crate::{Error, StateLost, events::Event};

/// Name of the internal server that reaches the gateway's own tools.
const GATEWAY_SERVER: &str = "stayput gateway";

/// Header that names the session of a request.
pub(crate) const SESSION_HEADER: &str = "stayput-session";

/// Longest name of a server at a gateway.
const MAX_SERVER_NAME: usize = 64;

/// Gateway that a hub is connected to.
#[derive(Clone)]
pub(crate) struct Gateway {
    /// URL without a path.
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    /// Names of servers that the gateway is known to have.
    confirmed: Arc<Mutex<BTreeSet<String>>>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gateway({})", self.url)
    }
}

impl Gateway {
    pub(crate) fn new(url: String) -> Self {
        Self { url, token: None, confirmed: Arc::default() }
    }

    /// Creates the entry of a server of the gateway. Its links have a connection at the gateway each, whose default
    /// session serves runs; the header names the sessions that have a name.
    pub(crate) fn server(&self, name: &str) -> Result<HubServer, Error> {
        let era = if name == GATEWAY_SERVER { EraChoice::Modern } else { EraChoice::Legacy };
        let path = if name == GATEWAY_SERVER { String::new() } else { format!("/{name}") };
        let mut http = Http::new(format!("{}/mcp{path}", self.url));
        if let Some(token) = &self.token {
            http = http.bearer(token);
        }
        let isolation = Some(Isolation::PerSession);
        let options = Options { era, isolation, ..Options::default() };
        Ok(HubServer::new(Server::with(name, http, options)?))
    }
}

impl HubInner {
    /// Whether the gateway has no server at the path of a request. It then answers 404 and a sentence that begins with these
    /// words, which a backoff repeats.
    pub(crate) fn is_not_at_gateway(&self, error: &LinkOpenError) -> bool {
        let refused =
            || error.to_string().contains("refused the connection: there is nothing here");
        self.gateway.is_some() && refused()
    }

    /// Whether an event is about the gateway's own tools, which no user has called.
    pub(crate) fn is_internal(&self, event: &Event) -> bool {
        match event {
            Event::Linked { server, .. } | Event::Called { server, .. } => server == GATEWAY_SERVER,
            _ => false,
        }
    }
}

impl Hub {
    /// Refuses a server that the gateway does not have. The gateway is asked until it knows the name. A server that it has and
    /// that fails refuses nothing: only its own calls fail.
    pub(crate) async fn confirm_server(&self, name: &str) -> Result<(), Error> {
        let Some(gateway) = &self.inner.gateway else { return self.check_server_exists(name) };
        if gateway.confirmed.lock().contains(name) {
            return Ok(());
        }
        let server = self.server(name)?;
        match self.inner.links.profile(&server, &self.profile_place()).await {
            Ok(_) => {
                gateway.confirmed.lock().insert(name.to_owned());
                Ok(())
            }
            Err(source) if self.inner.is_not_at_gateway(&source) => {
                Err(self.gateway_failure(name, source))
            }
            Err(_) => Ok(()),
        }
    }

    /// Returns the error of a server that cannot be used. A server that the gateway does not have is forgotten, so that a
    /// later rule of a sub-agent does not count it as known.
    pub(crate) fn gateway_failure(&self, name: &str, source: Arc<LinkOpenError>) -> Error {
        if self.inner.is_not_at_gateway(&source) {
            self.inner.servers.remove(&Agent::none(), name);
            return self.unknown_server(name);
        }
        Error::ServerFailed { server: name.to_owned(), source }
    }
}

/// Whether a server at a gateway can have this name.
pub(crate) fn can_be_server(name: &str) -> bool {
    let allowed = |it: u8| it.is_ascii_alphanumeric() || b"._-".contains(&it);
    name == GATEWAY_SERVER
        || (!name.is_empty() && name.len() <= MAX_SERVER_NAME && name.bytes().all(allowed))
}

/// Key of a session at the gateway. Names of agents, of the hub and global ones stay apart.
pub(crate) fn session_key(record: &Record) -> Option<String> {
    let key: &Key = record.key.as_ref()?;
    let name = encode(key.value());
    Some(match (key.source() == Key::NAME_SOURCE, &record.agent) {
        (false, _) => format!("key:/{name}"),
        (true, agent) if *agent == Agent::none() => format!("key:{name}"),
        (true, agent) => format!("key:{}/{name}", encode(agent.as_str())),
    })
}

/// Percent-encodes what has a meaning in a key, or is not printable in a header.
fn encode(text: &str) -> String {
    let plain = |it: u8| it.is_ascii_graphic() && !b"%/".contains(&it);
    let piece = |it: u8| if plain(it) { char::from(it).to_string() } else { format!("%{it:02X}") };
    text.bytes().map(piece).collect()
}

/// Returns the loss that an answer of a gateway reports, if it does.
pub(crate) fn loss_of(answer: &Answer, server: &str) -> Option<StateLost> {
    let text = answer.result().or(answer.error())?;
    let answered = Raw::parse(text).ok()?;
    let report = if answer.code() == Some(Code::STATE_LOST) {
        answered.find(&["data"])?
    } else {
        let state = answered.find(&["_meta", meta::STATE])?;
        let is_refusal = answered.find(&["isError"])?.as_str() == "true";
        (is_refusal && state.find(&["state"])?.text()? == "lost").then_some(state)?
    };
    let generation = Generation(report.find(&["generation"])?.as_str().parse().ok()?);
    let ran = report.find(&["may_have_run"]);
    // Without a word about it, the worse case counts.
    let is_unexecuted = ran.is_some_and(|ran| ran.as_str() == "false");
    let delivery = if is_unexecuted { Delivery::NotSent } else { Delivery::Unknown };
    let server = Some(server.to_owned());
    Some(StateLost { server, generation, delivery, reason: "gateway", link: None })
}

/// Ends the session of this key at the gateway. If that fails, the session expires there by itself.
pub(crate) async fn end_session(hub: &Arc<HubInner>, key: String) {
    let hub = Hub { inner: hub.clone(), agent: Agent::none() };
    let arguments = serde_json::json!({ "session_id": key });
    if let Err(error) = hub.ephemeral().call(GATEWAY_SERVER, "session_end", arguments).await {
        tracing::warn!("the session was not ended at the gateway: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_agents_and_of_the_hub_stay_apart() {
        let record = |agent: Agent, key: Key| {
            let record = Record::new(
                stayput_core::Owner::local(),
                stayput_core::Expiry::NEVER,
                stayput_core::Timestamp::from_millis(0),
            );
            session_key(&record.with_key(agent, key)).unwrap()
        };
        let (none, ann) = (Agent::none(), Agent::named("ann").unwrap());
        assert_eq!(record(none.clone(), Key::named("a/ü").unwrap()), "key:a%2F%C3%BC");
        assert_eq!(record(ann, Key::named("x").unwrap()), "key:ann/x");
        assert_eq!(record(none, Key::new("global", "x").unwrap()), "key:/x");
        assert!(can_be_server("my.server-1") && !can_be_server("../admin") && !can_be_server(""));
    }
}

//! What a gateway is made of.

use std::{net::SocketAddr, path::PathBuf};

use stayput_core::{Expiry, SessionLimits};
use stayput_upstream::{Limits, SealKey};

use super::ServeError;
use crate::{
    app::instance_lock,
    auth::Authenticator,
    config::{Auth, Config, Identify, ServerEntry},
    observe::{ObserveRules, log::Log},
    state::RequestRules,
};

/// What a gateway is made of.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Where to listen over HTTP, if at all.
    pub(crate) listen: Option<SocketAddr>,
    /// Whether `stayput stdio` can come in.
    pub(crate) socket: bool,
    pub(crate) store: String,
    pub(crate) servers: Vec<ServerEntry>,
    pub(crate) rules: RequestRules,
    pub(crate) limits: Limits,
    pub(crate) pace: Option<usize>,
    pub(crate) expiry: Expiry,
    pub(crate) sessions: SessionLimits,
    pub(crate) identify: Identify,
    pub(crate) auth: Auth,
    /// Whether others may come in although nobody is asked who they are.
    pub(crate) open_to_all: bool,
    /// Who is told of every call.
    pub(crate) watch: ObserveRules,
    /// The keys under which secrets are kept, the one that seals first; if there is none, one is made.
    pub(crate) seal: Vec<SealKey>,
    /// Where keys and private folders are.
    pub(crate) data: PathBuf,
}

impl Plan {
    /// What a configuration asks for.
    pub(crate) fn of(config: Config) -> Result<Self, ServeError> {
        let rules = RequestRules {
            body_limit: config.limits.body,
            header_limit: config.limits.headers,
            stall: config.limits.stall,
            drain: config.limits.drain,
            calls: config.limits.calls,
            sockets: config.limits.sockets,
            allowed_hosts: config.allowed_hosts,
            allowed_origins: config.allowed_origins,
            public_url: config.public_url,
            ..RequestRules::default()
        };
        Ok(Self {
            listen: Some(config.listen),
            socket: true,
            data: instance_lock::folder(&config.store)?,
            store: config.store,
            servers: config.servers,
            rules,
            limits: config.limits.links,
            pace: config.limits.pace.limit(!config.auth.is_none()),
            expiry: config.expiry,
            sessions: config.limits.sessions,
            identify: config.identify,
            auth: config.auth,
            watch: config.watch,
            seal: config.seal,
            open_to_all: false,
        })
    }
}

/// Where others can come in without being asked who they are, if whoever runs it wants that.
///
/// # Errors
/// If it is so, and nobody said that it may be.
pub(crate) fn exposed(
    plan: &Plan,
    owners: &Authenticator,
) -> Result<Option<SocketAddr>, ServeError> {
    let exposed = plan.listen.filter(|it| owners.is_open() && !it.ip().is_loopback());
    match exposed {
        Some(address) if !plan.open_to_all => Err(ServeError::Exposed { address }),
        exposed => Ok(exposed),
    }
}

/// Says to whoever runs it that others can come in without being asked who they are.
pub(super) fn warn_if_exposed(
    plan: &Plan,
    owners: &Authenticator,
    log: Log,
) -> Result<(), ServeError> {
    if let Some(address) = exposed(plan, owners)? {
        log.warn(&format!(
            "{address} can be reached from other machines, and whoever does so is let in: all of them \
             are one owner, and can reach each other's sessions"
        ));
    }
    Ok(())
}

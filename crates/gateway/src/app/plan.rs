//! Settings of a gateway before it starts.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use stayput_core::{Expiry, SessionLimits};
use stayput_upstream::SealKey;

use super::{ServeError, descriptors};
use crate::{
    app::instance_lock,
    auth::Authenticator,
    config::{Auth, ClusterSettings, Config, Identify, Limits, ServerEntry},
    observe::ObserveRules,
    state::RequestRules,
};

/// Settings of a gateway, from the configuration and the command line.
#[derive(Debug)]
pub(crate) struct Plan {
    /// HTTP address to listen on. `None` to not listen over HTTP.
    pub(crate) listen: Option<SocketAddr>,
    /// Whether to listen on the Unix socket, for `stayput stdio`.
    pub(crate) socket: bool,
    pub(crate) store: String,
    /// Time after which the lease on the store expires without renewal.
    pub(crate) lease: Duration,
    pub(crate) servers: Vec<ServerEntry>,
    pub(crate) rules: RequestRules,
    pub(crate) limits: stayput_upstream::Limits,
    pub(crate) rate_limiter: Option<usize>,
    pub(crate) expiry: Expiry,
    pub(crate) sessions: SessionLimits,
    pub(crate) identify: Identify,
    pub(crate) auth: Auth,
    /// Whether the gateway may listen on a public address without authentication.
    pub(crate) open_to_all: bool,
    /// Audit log and spans.
    pub(crate) observe: ObserveRules,
    /// Keys that seal secrets in the store. The first one seals. If the list is empty, a key is generated.
    pub(crate) seal: Vec<SealKey>,
    /// Cooperation with other gateways on the same store.
    pub(crate) cluster: Option<ClusterSettings>,
    /// Folder of keys and private folders.
    pub(crate) data: PathBuf,
    /// Folder of private folders, if it is configured.
    pub(crate) folders: Option<PathBuf>,
    /// Note for the log if there are fewer sockets than configured.
    pub(crate) socket_note: Option<String>,
}

impl Plan {
    /// Builds the plan that a configuration asks for.
    pub(crate) fn new(config: Config) -> Result<Self, ServeError> {
        let Config { settings: config, store, servers, .. } = config;
        let (sockets, budget) = (config.limits.sockets, descriptors::socket_budget());
        let rules = RequestRules {
            tls: config.tls,
            limits: Limits { sockets: sockets.min(budget), ..config.limits },
            allowed_hosts: config.allowed_hosts,
            allowed_origins: config.allowed_origins,
            public_url: config.public_url,
            show_arguments: config.show_arguments,
            ..RequestRules::default()
        };
        Ok(Self {
            listen: Some(config.listen),
            socket: true,
            data: instance_lock::data_folder(config.data.as_deref(), &store)?,
            folders: config.folders,
            store,
            lease: config.lease,
            servers,
            rules,
            limits: config.limits.links,
            rate_limiter: config.limits.rate.limit(!config.auth.is_none()),
            expiry: config.expiry,
            sessions: config.limits.sessions,
            identify: config.identify,
            auth: config.auth,
            observe: config.observe,
            seal: config.seal,
            cluster: config.cluster,
            open_to_all: false,
            socket_note: (budget < sockets).then(|| descriptors::describe(sockets, budget)),
        })
    }
}

impl Plan {
    /// Returns the folder of the private folders of sessions and owners.
    pub(super) fn private_folders(&self) -> PathBuf {
        self.folders.clone().unwrap_or_else(|| self.data.join("folders"))
    }
}

/// Returns the address that other machines can reach without authentication, if there is one and that is allowed.
///
/// # Errors
/// If there is such an address, and `open_to_all` is not set.
pub(crate) fn exposed(
    plan: &Plan,
    authenticator: &Authenticator,
) -> Result<Option<SocketAddr>, ServeError> {
    let exposed = plan.listen.filter(|it| authenticator.is_open() && !it.ip().is_loopback());
    match exposed {
        Some(address) if !plan.open_to_all => Err(ServeError::Exposed { address }),
        exposed => Ok(exposed),
    }
}

/// Logs a warning if other machines can connect without authentication.
pub(super) fn warn_if_exposed(
    plan: &Plan,
    authenticator: &Authenticator,
) -> Result<(), ServeError> {
    if let Some(address) = exposed(plan, authenticator)? {
        tracing::warn!(
            "{address} can be reached from other machines, and no credentials are asked for: all clients \
             are one owner, and can reach each other's sessions"
        );
    }
    Ok(())
}

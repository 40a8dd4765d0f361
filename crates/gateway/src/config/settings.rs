//! Settings of the gateway: the top-level `stayput` object.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use stayput_config::{ConfigObject, ConfigValue, Environment, Problem, ReadResult};
use stayput_core::{Expiry, SessionLimits};
use stayput_stores::{Address, AddressError};
use stayput_upstream::{PerOwner, SealKey};
use stayput_wire::Message;

use super::{
    auth::{self, Auth},
    cluster::{self, ClusterSettings},
    identify::Identify,
    keys, observe, seal,
    tls::{self, Tls},
};
use crate::{auth::body_budget::BodyLimits, observe::ObserveRules};

/// Limits of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Limits of links and child processes.
    pub(crate) links: stayput_upstream::Limits,
    /// Limits of the sessions of one owner.
    pub(crate) sessions: SessionLimits,
    /// Maximum number of calls in flight per session.
    pub(crate) calls: u64,
    /// Request rate limit of one owner.
    pub(crate) rate: RateSetting,
    /// Limits of request bodies. One body defaults to the maximum size of a message.
    pub(crate) body: BodyLimits,
    /// Maximum size of the request headers in bytes.
    pub(crate) headers: usize,
    /// Maximum time without progress while a request is received.
    pub(crate) stall: Duration,
    /// Drain time of calls, when a server's configuration changes and when the gateway stops.
    pub(crate) drain: Option<Duration>,
    /// Maximum number of open client sockets.
    pub(crate) sockets: usize,
    /// Maximum number of sockets from one address, if configured.
    pub(crate) sockets_per_address: Option<usize>,
}

/// Request rate limit of one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RateSetting {
    /// Default: a limit if there is authentication. Without it all clients are one owner.
    #[default]
    Usual,
    /// No limit.
    Unlimited,
    /// This many requests per second.
    Limit(usize),
}

impl RateSetting {
    /// Default number of requests per second and owner with authentication: enough for a busy host with many agents,
    /// but not for a runaway loop.
    const DEFAULT_RATE: usize = 500;

    /// Returns the number of requests per second. `known` says whether there is authentication.
    pub(crate) fn limit(self, known: bool) -> Option<usize> {
        match self {
            Self::Usual => known.then_some(Self::DEFAULT_RATE),
            Self::Unlimited => None,
            Self::Limit(count) => Some(count),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let (links, sessions) = (stayput_upstream::Limits::default(), SessionLimits::default());
        Self {
            links,
            sessions,
            calls: 256,
            rate: RateSetting::default(),
            body: BodyLimits {
                each: Message::MAX_BYTES,
                per_owner: 64 << 20,
                all: 256 << 20,
                time: Duration::from_secs(5 * 60),
            },
            headers: 64 << 10,
            stall: Duration::from_secs(30),
            drain: None,
            sockets: 10_000,
            sockets_per_address: None,
        }
    }
}

/// Settings of the gateway, with defaults for missing keys.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Address to listen on.
    pub(crate) listen: SocketAddr,
    /// Certificate and key, if it listens with TLS.
    pub(crate) tls: Option<Tls>,
    /// Time after which the lease on the store expires without renewal.
    pub(crate) lease: Duration,
    /// Allowed web origins in addition to those of this machine.
    pub(crate) allowed_origins: Vec<String>,
    /// Allowed host names in addition to those of this machine.
    pub(crate) allowed_hosts: Vec<String>,
    /// Lifetime of sessions.
    pub(crate) expiry: Expiry,
    pub(crate) limits: Limits,
    /// Session identification.
    pub(crate) identify: Identify,
    /// Authentication.
    pub(crate) auth: Auth,
    /// Public URL of the gateway.
    pub(crate) public_url: Option<String>,
    /// Audit log and spans.
    pub(crate) observe: ObserveRules,
    /// Whether the dashboard shows the arguments of calls.
    pub(crate) show_arguments: bool,
    /// Keys that protect secrets in the store: the first one seals, all of them open. If there is none, a key is
    /// generated.
    pub(crate) seal: Vec<SealKey>,
    /// Cooperation with other gateways on the same store, if it is configured.
    pub(crate) cluster: Option<ClusterSettings>,
    /// Folder of keys and private folders, if it is not derived from the store.
    pub(crate) data: Option<PathBuf>,
    /// Folder of private folders, if it is not in the data folder.
    pub(crate) folders: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 7337).into(),
            tls: None,
            lease: Duration::from_secs(15),
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            expiry: Expiry::default(),
            limits: Limits::default(),
            identify: Identify::default(),
            auth: Auth::default(),
            public_url: None,
            observe: ObserveRules::default(),
            show_arguments: false,
            seal: Vec::new(),
            cluster: None,
            data: None,
            folders: None,
        }
    }
}

impl Settings {
    /// Reads the settings, and the URL of the session store if there is one.
    pub(super) fn read(setting: &ConfigValue<'_>) -> ReadResult<(Self, Option<String>)> {
        let table = setting.object_with_keys(keys::FILE)?;
        let own = Self::default();
        let public_url = table.read("public_url", auth::public_url)?;
        let auth = table.read("auth", |setting| auth::auth(setting, public_url.as_deref()))?;
        let settings = Self {
            auth: auth.unwrap_or_default(),
            public_url,
            seal: table.read("seal", seal::seal)?.unwrap_or_default(),
            listen: table.read("listen", listen)?.unwrap_or(own.listen),
            tls: table.read("tls", tls::tls)?,
            lease: table.read("lease", lease)?.unwrap_or(own.lease),
            allowed_origins: texts(&table, "allowed_origins", origin)?,
            allowed_hosts: texts(&table, "allowed_hosts", host)?,
            expiry: table.read("expiry", expiry)?.unwrap_or_default(),
            limits: table.read("limits", limits)?.unwrap_or_default(),
            identify: Identify::read(&table)?,
            observe: observe::observe(&table)?,
            cluster: table.read("cluster", cluster::cluster)?,
            data: table.read("data", folder)?,
            folders: table.read("folders", folder)?,
            show_arguments: table.read("ui", observe::ui)?.unwrap_or_default(),
        };
        Ok((settings, table.read("store", store)?))
    }
}

pub(super) fn listen(setting: &ConfigValue<'_>) -> ReadResult<SocketAddr> {
    let text = setting.text()?;
    let expected = "an address with a port such as \"127.0.0.1:7337\"";
    address(&text).ok_or_else(|| setting.error(Problem::Form { expected }))
}

/// Parses an address to listen on. The only host name it accepts is `localhost`, which means the same on every machine.
pub(crate) fn address(text: &str) -> Option<SocketAddr> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    local.map(|port: u16| (Ipv4Addr::LOCALHOST, port).into()).or_else(|| text.parse().ok())
}

/// Reads the URL of a store. A relative path starts at the folder of the configuration, because the gateway may be
/// started from any directory.
fn store(setting: &ConfigValue<'_>) -> ReadResult<String> {
    let text = setting.text()?;
    let parsed: Result<_, AddressError> = text.parse();
    let parsed = parsed.map_err(|error| setting.error(Problem::Other(error.to_string())))?;
    let Address::Sqlite(path) = parsed else { return Ok(text) };
    let path = path.to_str().unwrap_or_default();
    let path = setting.context.path(path).map_err(|problem| setting.error(problem))?;
    let path = path.to_str().ok_or_else(|| setting.error(Problem::Folder))?;
    Ok(format!("sqlite:{path}"))
}

/// Reads the path of a folder. A relative path starts at the folder of the configuration.
fn folder(setting: &ConfigValue<'_>) -> ReadResult<PathBuf> {
    setting.context.path(&setting.text()?).map_err(|problem| setting.error(problem))
}

/// Reads the lease. A shorter one could not be renewed in time, and a longer one would lock out others for too long.
fn lease(setting: &ConfigValue<'_>) -> ReadResult<Duration> {
    let span = setting.duration()?;
    let expected = "a time from \"1s\" to \"1h\", such as \"15s\"";
    let allowed = Duration::from_secs(1)..=Duration::from_secs(60 * 60);
    if allowed.contains(&span) { Ok(span) } else { Err(setting.error(Problem::Form { expected })) }
}

/// Returns the default store: in the data folder of the user, or next to the configuration for a user without one.
pub(super) fn default_store(environment: &Environment, folder: &std::path::Path) -> Option<String> {
    let at_home = || Some(environment.home()?.join(".local/share"));
    let data = environment.folder("XDG_DATA_HOME").or_else(at_home);
    let folder = data.map_or_else(|| folder.to_owned(), |data| data.join("stayput"));
    Some(format!("sqlite:{}", folder.join("stayput.db").to_str()?))
}

fn texts(
    table: &ConfigObject<'_>,
    name: &str,
    check: fn(&str) -> Result<(), &'static str>,
) -> ReadResult<Vec<String>> {
    let Some(setting) = table.get(name) else { return Ok(Vec::new()) };
    let checked = |setting: &ConfigValue<'_>| {
        let text = setting.text()?;
        check(&text).map_err(|expected| setting.error(Problem::Form { expected }))?;
        Ok(text)
    };
    setting.list()?.iter().map(checked).collect()
}

fn origin(text: &str) -> Result<(), &'static str> {
    match text.split_once("://") {
        Some((scheme, host)) if !scheme.is_empty() && !host.is_empty() && !host.contains('/') => {
            Ok(())
        }
        _ => Err("an origin such as \"https://app.example.com\", without anything behind it"),
    }
}

fn host(text: &str) -> Result<(), &'static str> {
    if text.is_empty() || text.contains(['/', ' ', '@']) {
        return Err("a host such as \"mcp.example.com\" or \"mcp.example.com:8443\"");
    }
    Ok(())
}

fn expiry(setting: &ConfigValue<'_>) -> ReadResult<Expiry> {
    let table = setting.object_with_keys(keys::EXPIRY)?;
    let own = Expiry::default();
    Ok(Expiry {
        idle: table.read("idle", ConfigValue::lifetime)?.unwrap_or(own.idle),
        absolute: table.read("absolute", ConfigValue::lifetime)?.unwrap_or(own.absolute),
    })
}

fn limits(setting: &ConfigValue<'_>) -> ReadResult<Limits> {
    let table = setting.object_with_keys(keys::LIMITS)?;
    let own = Limits::default();
    let PerOwnerSettings { links: per_owner, rate, bodies } =
        table.read("per_owner", per_owner)?.unwrap_or_default();
    let links = stayput_upstream::Limits {
        processes: table.read("processes", ConfigValue::count)?.unwrap_or(own.links.processes),
        links: table.read("links", ConfigValue::count)?.unwrap_or(own.links.links),
        memory: table.read("memory", ConfigValue::bytes)?,
        per_owner,
        wait: table.read("wait", ConfigValue::duration)?.unwrap_or(own.links.wait),
    };
    let per_owner = table.read("sessions_per_owner", ConfigValue::positive)?;
    let sessions =
        SessionLimits { per_owner: per_owner.unwrap_or(own.sessions.per_owner), ..own.sessions };
    let calls = table.read("calls_per_session", ConfigValue::positive)?;
    Ok(Limits {
        links,
        sessions,
        calls: calls.map_or(own.calls, |calls| u64::try_from(calls).unwrap_or(u64::MAX)),
        rate,
        body: body_limits(&table, bodies)?,
        headers: table.read("headers", headers)?.unwrap_or(own.headers),
        stall: table.read("stall", stall)?.unwrap_or(own.stall),
        drain: table.read("drain", ConfigValue::duration)?,
        sockets: table.read("sockets", ConfigValue::positive)?.unwrap_or(own.sockets),
        sockets_per_address: table.read("sockets_per_address", ConfigValue::positive)?,
    })
}

/// Reads the limits of request bodies. A budget is never smaller than one body, and the one of all owners never smaller
/// than that of one.
fn body_limits(table: &ConfigObject<'_>, per_owner: Option<usize>) -> ReadResult<BodyLimits> {
    let own = Limits::default().body;
    let each = table.read("body", size)?.unwrap_or(own.each);
    let per_owner = per_owner.unwrap_or(own.per_owner).max(each);
    let all = table.read("bodies", size)?.unwrap_or(own.all).max(per_owner);
    let time = table.read("body_time", stall)?.unwrap_or(own.time);
    Ok(BodyLimits { each, per_owner, all, time })
}

fn size(setting: &ConfigValue<'_>) -> ReadResult<usize> {
    Ok(usize::try_from(setting.bytes()?).unwrap_or(usize::MAX))
}

/// Less than 8 KiB would not hold the usual headers of clients, nor serve as a read buffer.
fn headers(setting: &ConfigValue<'_>) -> ReadResult<usize> {
    let size = setting.bytes()?;
    let size = usize::try_from(size).ok().filter(|size| (8 << 10..=1 << 20).contains(size));
    let expected = "an amount from \"8KiB\" to \"1MiB\"";
    size.ok_or_else(|| setting.error(Problem::Form { expected }))
}

fn stall(setting: &ConfigValue<'_>) -> ReadResult<Duration> {
    let span = setting.duration()?;
    let expected = "a time of a second or more, such as \"30s\"";
    let enough = span >= Duration::from_secs(1);
    if enough { Ok(span) } else { Err(setting.error(Problem::Form { expected })) }
}

/// Settings of `per_owner`.
#[derive(Default)]
struct PerOwnerSettings {
    links: PerOwner,
    rate: RateSetting,
    /// Bytes of request bodies.
    bodies: Option<usize>,
}

fn per_owner(setting: &ConfigValue<'_>) -> ReadResult<PerOwnerSettings> {
    let table = setting.object_with_keys(keys::PER_OWNER)?;
    let own = PerOwner::default();
    let links = PerOwner {
        processes: table.read("processes", ConfigValue::count)?.unwrap_or(own.processes),
        links: table.read("links", ConfigValue::count)?.unwrap_or(own.links),
    };
    let rate = table.read("requests_per_second", |setting| match setting.is_number() {
        true => setting.positive().map(RateSetting::Limit),
        false => setting.choice(&[("unlimited", RateSetting::Unlimited)]),
    })?;
    let bodies = table.read("bodies", size)?;
    Ok(PerOwnerSettings { links, rate: rate.unwrap_or_default(), bodies })
}

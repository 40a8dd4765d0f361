//! Reload of the configuration while the gateway runs.
//!
//! Each valid configuration becomes a new snapshot of the application state, which all later requests use. Servers with
//! the same configuration keep their links. Links of the others end with their last call, and their state is lost. A
//! configuration with errors changes nothing.

mod changes;
mod file_watch;

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use stayput_core::Owner;
use stayput_upstream::SealKey;

use tokio::{
    runtime::Handle,
    signal::unix::{SignalKind, signal},
};

use self::changes::Changes;
use crate::{
    app::{self, Plan, ServeError, maintenance, reload::file_watch::Watch},
    auth::{Claims, rate_limit::RateLimiter},
    config::{ClusterSettings, Config, ConfigError, target::Target},
    observe::ObserveRules,
    reply::loss::LISTS_CHANGED,
    state::{AppState, ServerSet},
};

/// Time that calls may still take at a server whose configuration changed, unless the configuration sets another one.
const DEFAULT_DRAIN: Duration = Duration::from_secs(30);

/// Configuration file and the command line options that override it.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) file: PathBuf,
    pub(crate) listen: Option<SocketAddr>,
    /// URL of the store. It can contain a password.
    pub(crate) store: Option<String>,
    /// Folder of keys and private folders.
    pub(crate) data: Option<PathBuf>,
    pub(crate) open_to_all: bool,
}

/// Reason why there is no usable configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// No file was named, and none was found in the default places.
    #[error(
        "there is no configuration: name one with --config FILE, or put stayput.json, .mcp.json or \
         mcp.json into {0:?}"
    )]
    NoConfig(PathBuf),
    /// A file that was named cannot be read.
    #[error("{} cannot be read: {error}", file.display())]
    File { file: PathBuf, error: io::Error },
    /// A secret on the command line, where every user of the machine can read it.
    #[error(
        "the URL of --store has a password, and a command line can be read by everybody on this machine; \
         write \"store\": \"${{STAYPUT_STORE}}\" into the configuration, and set that variable"
    )]
    Password,
    /// The file has errors.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Source {
    /// Reads the file. Returns the configuration and all files that it depends on.
    pub(crate) fn load(&self) -> (Result<Config, StartError>, Vec<PathBuf>) {
        let (config, files) = Config::load_with_files(&self.file);
        let config = config.map(|mut config| {
            config.settings.listen = self.listen.unwrap_or(config.listen);
            config.settings.data = self.data.clone().or(config.settings.data);
            config.store = self.store.clone().unwrap_or(config.store);
            config
        });
        (config.map_err(StartError::from), files)
    }
}

/// Reason why a configuration was refused.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Wrong(#[from] StartError),
    #[error(transparent)]
    Unusable(#[from] ServeError),
}

/// Reads the configuration again whenever it changes.
pub(crate) struct ConfigReader {
    source: Source,
    watch: Watch,
    /// Whether the configuration that was read last was refused.
    refused: bool,
    fixed: FixedSettings,
}

/// Settings that cannot change while the gateway runs.
struct FixedSettings {
    listen: SocketAddr,
    store: String,
    lease: Duration,
    observe: ObserveRules,
    seal: Vec<SealKey>,
    cluster: Option<ClusterSettings>,
    /// Folder of keys and private folders, as configured.
    data: Option<PathBuf>,
    /// Folder of private folders, as configured.
    folders: Option<PathBuf>,
}

impl ConfigReader {
    /// Reads the configuration for the first time.
    ///
    /// # Errors
    /// [`StartError`] names the mistake.
    pub(crate) fn begin(source: Source) -> Result<(Config, Self), StartError> {
        let begun = file_watch::look(std::slice::from_ref(&source.file));
        let (config, files) = source.load();
        let config = config?.require_usable()?;
        let fixed = FixedSettings {
            listen: config.listen,
            store: config.store.clone(),
            lease: config.lease,
            observe: config.observe.clone(),
            seal: config.seal.clone(),
            cluster: config.cluster.clone(),
            data: config.data.clone(),
            folders: config.folders.clone(),
        };
        let watch = Watch::new(begun, &files);
        Ok((config, Self { source, watch, refused: false, fixed }))
    }

    /// Reads the configuration again whenever one of its files changes or a SIGHUP arrives.
    ///
    /// # Errors
    /// If the handler of SIGHUP cannot be registered.
    pub(crate) async fn run(mut self, first: &Arc<AppState>) -> io::Result<()> {
        let mut hangups = signal(SignalKind::hangup())?;
        loop {
            let asked = tokio::select! {
                () = self.watch.changed() => false,
                _ = hangups.recv() => true,
            };
            let app = first.now();
            if asked && !self.refused && self.watch.is_as_before().await {
                app.count_reloaded("unchanged");
                tracing::info!("the configuration is as it was before");
                continue;
            }
            let Some(config) = self.read().await else { continue };
            let applied = config.and_then(|config| self.apply(&app, config));
            self.refused = applied.is_err();
            match applied {
                Ok(changes) => changes.notify_clients(&app, &app.now()),
                Err(refused) => {
                    app.count_reloaded("refused");
                    tracing::warn!(
                        event = "reload_refused",
                        "the configuration is not taken over, and the one before holds: {refused}"
                    );
                }
            }
        }
    }

    /// Reads the configuration on a blocking thread.
    async fn read(&mut self) -> Option<Result<Config, ReloadError>> {
        let (source, known) = (self.source.clone(), self.watch.files().to_vec());
        let read = move || {
            let begun = file_watch::look(&known);
            let (config, files) = source.load();
            (config, Watch::new(begun, &files))
        };
        let (config, watch) = tokio::task::spawn_blocking(read).await.ok()?;
        self.watch = watch;
        Some(config.map_err(ReloadError::from))
    }

    /// Applies a configuration: builds the next snapshot and makes it the current one.
    fn apply(&self, before: &Arc<AppState>, config: Config) -> Result<Changes, ReloadError> {
        // A server that is in use is not ended by a mistake in its entry.
        let in_use = |(name, _): &&(String, ConfigError)| before.servers.contains_key(name);
        if let Some((_, error)) = config.broken.iter().find(in_use) {
            return Err(StartError::from(error.clone()).into());
        }
        let mut warnings = config.all_warnings();
        let (open_to_all, data) = (self.source.open_to_all, config.data.clone());
        let mut plan = Plan { open_to_all, ..Plan::new(config)? };
        warnings.extend(self.fixed.restore_fixed((&mut plan, data), before));
        let authenticator =
            app::authenticator(std::mem::take(&mut plan.auth), Some(&before.authenticator))?;
        app::exposed(&plan, &authenticator)?;
        let changes = Changes::between(before, &mut plan.servers);
        let metrics = before.metrics.with(plan.servers.iter().map(|it| it.server.name()));
        before.links.set_limits(plan.limits);
        before.sessions.reconfigure(plan.expiry, plan.sessions);
        let server_set = ServerSet::new(plan.servers, plan.identify, plan.expiry);
        let app = Arc::new(AppState {
            metrics: metrics.into(),
            rules: plan.rules,
            authenticator: authenticator.into(),
            rate_limiter: RateLimiter::new(plan.rate_limiter).into(),
            removed: changes.removed_names(before).into(),
            current: before.current.clone(),
            number: before.number + 1,
            ..before.with_servers(server_set)
        });
        let (retiring, drain) =
            (changes.retire(before), app.rules.limits.drain.unwrap_or(DEFAULT_DRAIN));
        app.recent.calls.keep_arguments(app.rules.show_arguments);
        before.current.set(app.clone());
        // Open streams check their access by themselves.
        app.recheck_listeners();
        // From here on no new call is sent to the servers that retire.
        for retiring in retiring {
            Handle::current().spawn(retiring.run(drain));
        }
        maintenance::start_spares(&app);
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        changes.announce();
        // Counted last: a reader of the metric finds the log complete.
        app.count_reloaded("applied");
        Ok(changes)
    }
}

impl FixedSettings {
    /// Resets the settings that cannot change. Returns a warning for each.
    fn restore_fixed(
        &self,
        (plan, configured): (&mut Plan, Option<PathBuf>),
        before: &AppState,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        if plan.listen != Some(self.listen) {
            warnings.push(format!(
                "it still listens on {}: `listen` holds from the next start on",
                self.listen
            ));
            plan.listen = Some(self.listen);
        }
        let tls = &before.rules.tls;
        if plan.rules.tls.is_some() != tls.is_some() {
            let how = if tls.is_some() { "with" } else { "without" };
            warnings.push(format!(
                "it still listens {how} encryption: `tls` holds from the next start on"
            ));
            plan.rules.tls.clone_from(tls);
        }
        if plan.store != self.store {
            let sentence = "sessions stay where they are: `store` holds from the next start on";
            warnings.push(sentence.to_owned());
        }
        for (what, as_before) in [
            ("lease", plan.lease == self.lease),
            ("audit", plan.observe.audit == self.observe.audit),
            ("otlp", plan.observe.spans == self.observe.spans),
            ("seal", are_same(&plan.seal, &self.seal)),
            ("cluster", plan.cluster == self.cluster),
            ("data", configured == self.data),
            ("folders", plan.folders == self.folders),
        ] {
            if !as_before {
                warnings.push(format!("`{what}` is as it was: it holds from the next start on"));
            }
        }
        warnings
    }
}

/// Compares keys, whose bytes are not accessible: the second key must open what the first one has sealed.
fn are_same(some: &[SealKey], others: &[SealKey]) -> bool {
    const CONTEXT: &str = "reload";
    let same = |one: &SealKey, other: &SealKey| {
        one.seal(CONTEXT, b"").is_ok_and(|sealed| other.open(CONTEXT, &sealed).is_ok())
    };
    some.len() == others.len() && some.iter().zip(others).all(|(one, other)| same(one, other))
}

impl Changes {
    /// Sends list-changed notifications to the clients that see, or saw, a server that changed.
    fn notify_clients(&self, before: &AppState, now: &AppState) {
        let sees = |server: &str, owner: &Owner, claims: &Claims| {
            let shown = |app: &AppState| {
                app.servers.contains_key(server) && app.visibility.show(server, owner, claims)
            };
            shown(before) || shown(now)
        };
        for (_, text) in LISTS_CHANGED {
            for name in self.differing() {
                let target = Target::Server(name.into());
                now.connections.tell(&target, text, |owner, claims| sees(name, owner, claims));
            }
            let sees_any =
                |owner: &Owner, claims: &Claims| self.all().any(|it| sees(it, owner, claims));
            now.connections.tell(&Target::All, text, sees_any);
        }
    }
}

//! Builds the application state from a plan.

use std::{path::Path, sync::Arc};

use stayput_core::{EventIds, Sessions, SystemClock};
use stayput_engine::Engine;
use stayput_http::{Client, ClientSettings};
use stayput_process::{Processes, WardenCommand};
use stayput_upstream::{LinkSettings, Links, SealKey, SessionDirs};
use tokio::{runtime::Handle, sync::watch};

use super::{Plan, ServeError};
use crate::{
    auth::{Authenticator, Jwt, Keys, VerifiedTokens, login::Logins, rate_limit::RateLimiter},
    cluster::Cluster,
    config::{Auth, JwtRules},
    connections::{
        legacy_clients::LegacyClients, question_ids::QuestionIds, registry::Connections,
        stream_cache::StreamCache,
    },
    observe::{Observers, metrics::Metrics, recent::RecentActivity},
    reply::loss::LossAcknowledgements,
    state::{
        AppState, ConfiguredRules, ServerSet, Services, drain::Drain, health::Health,
        session_index::SessionIndex, shared_generations::SharedGenerations,
    },
};

/// Builds the application state, and the sender that announces the shutdown.
pub(super) fn app(
    mut plan: Plan,
    (authenticator, sessions, cluster): (Authenticator, Sessions, Option<Arc<Cluster>>),
) -> Result<(AppState, watch::Sender<bool>), ServeError> {
    let seal = seal(std::mem::take(&mut plan.seal), &plan.data.join("key"))?;
    let metrics = Metrics::new(plan.servers.iter().map(|it| it.server.name()));
    let links = links(&plan)?;
    let server_set = ServerSet::new(plan.servers, plan.identify, plan.expiry);
    let (stopping, closing) = watch::channel(false);
    let sessions = Arc::new(sessions);
    // Random, so that it distinguishes this process from earlier ones.
    let instance_id = stayput_core::content_digest(&secret()?).to_hex();
    let (ids, question_ids) = match &cluster {
        Some(cluster) => {
            let question_ids = QuestionIds::of_replica(seal.clone(), cluster.own().id);
            (cluster.event_ids.clone(), question_ids)
        }
        None => (EventIds::new(&secret()?), QuestionIds::default()),
    };
    let services = Services {
        engine: Engine::new(sessions.clone(), links.clone(), seal, &instance_id),
        sessions,
        links,
        connections: Connections::default(),
        legacy_clients: LegacyClients::default(),
        loss_acknowledgements: LossAcknowledgements::default(),
        generations: SharedGenerations::default(),
        server_claims: Arc::default(),
        stream_cache: StreamCache::default(),
        ids,
        question_ids: question_ids.into(),
        call_limiter: Arc::default(),
        body_budget: Arc::default(),
        health: Health::default(),
        drain: Drain::default(),
        cluster,
        recent: RecentActivity::default(),
        session_index: SessionIndex::default(),
        logins: Logins::default(),
        observers: Observers::start(plan.observe)?,
        closing,
    };
    let rate_limiter = RateLimiter::new(plan.rate_limiter);
    let rules = ConfiguredRules { rules: plan.rules, authenticator, rate_limiter, metrics };
    let app = AppState::new(services, server_set, rules);
    app.recent.calls.keep_arguments(app.rules.show_arguments);
    Ok((app, stopping))
}

/// Builds the authenticator. Keys of an issuer are fetched when the first token arrives, unless `before` has them.
pub(crate) fn authenticator(
    auth: Auth,
    before: Option<&Authenticator>,
) -> Result<Authenticator, ServeError> {
    let Auth { tokens, jwt, proxy, admin, metrics } = auth;
    let jwt = match jwt {
        Some(JwtRules { issuer, audiences, keys, subject, leeway }) => {
            let known = before.and_then(|it| it.jwt.as_ref()).map(|jwt| &jwt.keys);
            let keys = match known.filter(|known| known.come_from(&keys)) {
                Some(known) => known.clone(),
                None => Keys::new(keys, Client::new(&ClientSettings::default())?),
            };
            let (clock, verified) = (Arc::new(SystemClock), VerifiedTokens::default());
            Some(Jwt { issuer, audiences, subject, leeway, keys, clock, verified })
        }
        None => None,
    };
    Ok(Authenticator { tokens, jwt, proxy, admin, metrics })
}

/// Chain of keys: the first one seals, all of them open. The generated key of the data folder still opens what it
/// sealed before keys were configured.
pub(super) fn seal(keys: Vec<SealKey>, own: &Path) -> Result<SealKey, ServeError> {
    let mut keys = keys.into_iter();
    let Some(first) = keys.next() else { return Ok(SealKey::at(own)?) };
    let own = if own.exists() { Some(SealKey::from_file(own)?) } else { None };
    Ok(first.after(keys.chain(own)))
}

/// Random secret of this process. It is not stored, except in a cluster: streams are kept in memory, so ids that an earlier
/// process has sealed lead nowhere.
pub(super) fn secret() -> Result<[u8; 32], ServeError> {
    let mut bytes = [0; 32];
    // Without randomness the secret would be known to everyone, so this is an error.
    getrandom::fill(&mut bytes).map_err(|_| stayput_upstream::SealError::NoRandomness)?;
    Ok(bytes)
}

fn links(plan: &Plan) -> Result<Links, ServeError> {
    let root = plan.private_folders();
    let failed = |error| ServeError::Data { path: root.clone(), error };
    let program = std::env::current_exe().map_err(failed)?;
    let warden = WardenCommand::new(program, ["warden"]);
    let processes = Processes::wardened(warden, Handle::current());
    let (folders, limits) = (SessionDirs::new(&root).map_err(failed)?, plan.limits);
    let settings = LinkSettings { limits, ..LinkSettings::new(processes, folders) };
    Ok(Links::new(settings, Handle::current()))
}

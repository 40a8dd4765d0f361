//! What a house is furnished with before anybody comes in.

use std::{path::Path, sync::Arc};

use stayput_core::{EventIds, Sessions, SystemClock};
use stayput_upstream::{
    Folders, Limits, LinkSettings, Links, SealKey,
    http::{Client, ClientSettings},
    process::{Processes, WardenCommand},
};
use tokio::{runtime::Handle, sync::watch};

use super::{Plan, ServeError};
use crate::{
    auth::{Authenticator, Good, Jwt, Keys, rate_limit::RateLimiter},
    config::{Auth, JwtRules},
    observe::{Observers, log::Log, metrics::Metrics},
    state::{AppState, ServerSet},
};

/// A house as it is planned, and who says when it is about to close.
pub(super) fn app(
    mut plan: Plan,
    (owners, sessions): (Authenticator, Sessions),
    log: Log,
) -> Result<(AppState, watch::Sender<bool>), ServeError> {
    let seal = seal(std::mem::take(&mut plan.seal), &plan.data.join("key"))?;
    let metrics = Metrics::new(plan.servers.iter().map(|it| it.server.name()));
    let furnishing = ServerSet::new(plan.servers, plan.identify, plan.expiry);
    let ServerSet { servers, tools, views, restarting, aggregate, identify } = furnishing;
    let (stopping, closing) = watch::channel(false);
    let app = AppState {
        metrics: metrics.into(),
        health: Arc::default(),
        watch: Observers::start(plan.watch, log)?,
        tools,
        views,
        restarting,
        aggregate,
        servers,
        sessions: sessions.into(),
        links: links(&plan.data, plan.limits)?,
        connections: Arc::default(),
        callers: Arc::default(),
        telling: Arc::default(),
        generations: Arc::default(),
        shelf: Arc::default(),
        ids: EventIds::new(&secret()?),
        seal,
        life: stayput_core::content_digest(&secret()?).to_hex(),
        rules: plan.rules,
        owners: owners.into(),
        pace: RateLimiter::new(plan.pace).into(),
        crowd: Arc::default(),
        identify,
        log,
        closing,
        removed: Arc::default(),
        latest: Arc::default(),
        number: 0,
    };
    Ok((app, stopping))
}

/// Whom a configuration lets in. An issuer is asked for its keys when the first token comes, unless they are
/// known from `before`.
pub(crate) fn owners(
    auth: Auth,
    before: Option<&Authenticator>,
) -> Result<Authenticator, ServeError> {
    let Auth { tokens, jwt, proxy, admin } = auth;
    let jwt = match jwt {
        Some(JwtRules { issuer, audiences, keys, subject, leeway }) => {
            let known = before.and_then(|it| it.jwt.as_ref()).map(|jwt| &jwt.keys);
            let keys = match known.filter(|known| known.are_of(&keys)) {
                Some(known) => known.clone(),
                None => Keys::new(keys, Client::new(&ClientSettings::default())?),
            };
            let (clock, good) = (Arc::new(SystemClock), Good::default());
            Some(Jwt { issuer, audiences, subject, leeway, keys, clock, good })
        }
        None => None,
    };
    Ok(Authenticator { tokens, jwt, proxy, admin })
}

/// What seals, and what else opens. The key that was made before one was configured still opens what it
/// sealed.
fn seal(keys: Vec<SealKey>, own: &Path) -> Result<SealKey, ServeError> {
    let mut keys = keys.into_iter();
    let Some(first) = keys.next() else { return Ok(SealKey::at(own)?) };
    let own = if own.exists() { Some(SealKey::from_file(own)?) } else { None };
    Ok(first.after(keys.chain(own)))
}

/// Streams are kept in memory, so nothing that was sealed by an earlier process leads anywhere.
fn secret() -> Result<[u8; 32], ServeError> {
    let mut bytes = [0; 32];
    // A secret that everybody knows is none.
    getrandom::fill(&mut bytes).map_err(|_| stayput_upstream::SealError::NoRandomness)?;
    Ok(bytes)
}

fn links(data: &Path, limits: Limits) -> Result<Links, ServeError> {
    let failed = |error| ServeError::Data { path: data.to_owned(), error };
    let program = std::env::current_exe().map_err(failed)?;
    let warden = WardenCommand::new(program, ["warden"]);
    let processes = Processes::wardened(warden, Handle::current());
    let folders = Folders::new(&data.join("folders")).map_err(failed)?;
    let settings = LinkSettings { limits, ..LinkSettings::new(processes, folders) };
    Ok(Links::new(settings, Handle::current()))
}

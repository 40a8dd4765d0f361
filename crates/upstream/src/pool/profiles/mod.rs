//! Cache of server profiles. Each is learned once.

mod learn_task;
mod profile_entry;
mod url_probe;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use stayput_core::{Owner, SessionId};
use stayput_http::Worker;
use stayput_wire::Era;

pub(crate) use self::learn_task::is_allowed;
use self::{
    learn_task::LearnTask,
    profile_entry::{ProfileEntry, ProfileStep},
};
use crate::{
    ClientInfo, Identity, Isolation, Link, LinkOpenError, Links, Profile, Scope, Server,
    ServerProtocol, util::flag::Flag,
};
use stayput_sync::Mutex;

/// Timeout for lists that are fetched again, because other requests wait for them.
const RELEARN_TIMEOUT: Duration = Duration::from_secs(4);

/// Number of per-owner lists above which unused ones are dropped.
const MAX_CACHED_OWNERS: usize = 4096;

/// Number of distinct client capabilities for which one server is probed. Further clients get a known profile.
const MAX_PROBED_CAPABILITIES: usize = 32;

/// Profiles of all servers, by configuration, credentials and era order: a server that speaks both eras can
/// have two profiles.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    learned: Mutex<HashMap<Identity, Arc<ProfileEntry>>>,
    /// Further identities of a server: one per set of declared client capabilities.
    kinds: Mutex<HashMap<Identity, Vec<Identity>>>,
    /// Lists that were fetched again on links of one owner. Other owners must not see them, even with the
    /// same credentials (E23).
    changed: Mutex<HashMap<Identity, Arc<ProfileEntry>>>,
    closed: AtomicBool,
}

/// Identity of a profile and the owner that requests it. The owner is `None` if all owners see the same profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProfileKey<'a> {
    pub(crate) identity: Identity,
    pub(crate) owner: Option<&'a Owner>,
}

impl From<Identity> for ProfileKey<'_> {
    fn from(identity: Identity) -> Self {
        Self { identity, owner: None }
    }
}

/// Request for a profile, with the scope whose credentials are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProfileRequest<'a> {
    pub(crate) links: &'a Links,
    pub(crate) server: &'a Server,
    pub(crate) scope: &'a Scope,
    /// Client that is expected to open a link soon. The process of a probe is told of it and waits for its session.
    pub(crate) opener: Option<&'a ClientInfo>,
}

impl Profiles {
    fn entry(&self, identity: Identity) -> Arc<ProfileEntry> {
        self.learned.lock().entry(identity).or_default().clone()
    }

    /// Returns the cache entry for lists of this owner.
    fn own(&self, profile_key: ProfileKey<'_>) -> Arc<ProfileEntry> {
        let Some(owner) = profile_key.owner else { return self.entry(profile_key.identity) };
        let mut changed = self.changed.lock();
        if changed.len() >= MAX_CACHED_OWNERS {
            // Lists that are being fetched stay.
            changed.retain(|_, own| own.relearning.try_lock().is_err());
        }
        changed.entry(profile_key.identity.seen_by(owner)).or_default().clone()
    }

    /// Returns the cached profile.
    pub(crate) fn known<'a>(&self, profile_key: impl Into<ProfileKey<'a>>) -> Option<Arc<Profile>> {
        let ProfileKey { identity, owner } = profile_key.into();
        let own = owner.and_then(|owner| {
            let changed = self.changed.lock();
            changed.get(&identity.seen_by(owner)).cloned()
        });
        own.and_then(|own| own.known()).or_else(|| self.entry(identity).known())
    }

    /// Returns the key for this owner. Lists from shared links apply to all owners.
    pub(crate) fn profile_key<'a>(
        &self,
        server: &Server,
        identity: Identity,
        owner: &'a Owner,
    ) -> ProfileKey<'a> {
        let known = self.any(identity).map(|known| known.isolation(server));
        let owner = (known != Some(Isolation::Shared)).then_some(owner);
        ProfileKey { identity, owner }
    }

    /// Stores a profile that was learned earlier or in another process.
    pub(crate) fn set(&self, identity: Identity, profile: Arc<Profile>) {
        self.entry(identity).set(profile);
    }

    /// Returns the cached profile, or learns it on a temporary link. Concurrent requests wait for the same
    /// link, which has the scope of the first one. A cancelled request does not cancel the others.
    pub(crate) async fn get(
        &self,
        asker: ProfileRequest<'_>,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let identity = asker.identity().await?;
        if let Some(known) = self.known(ProfileKey { identity, owner: asker.scope.owner() }) {
            return Ok(known);
        }
        self.learned(asker, identity, ClientInfo::default()).await
    }

    /// Returns the profile for a client with these capabilities: some servers list more tools for such clients.
    pub(crate) async fn get_for(
        &self,
        asker: ProfileRequest<'_>,
        client_info: &ClientInfo,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let identity = asker.identity().await?;
        // On a shared link, clients receive no requests of the server.
        let alone = matches!(asker.scope, Scope::Session { .. });
        if !alone || !client_info.declares_anything() {
            return self.get(asker).await;
        }
        let kind = identity.declaring(client_info.capabilities_json());
        // Modern servers list the same for all clients.
        if let Some(known) = self.any(identity)
            && (known.protocol() == ServerProtocol::Modern || !self.admits(identity, kind))
        {
            return Ok(known);
        }
        let profile =
            self.learned(asker, kind, ClientInfo::default().declaring(client_info)).await?;
        let mut kinds = self.kinds.lock();
        let kinds = kinds.entry(identity).or_default();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
        Ok(profile)
    }

    /// Returns any profile of the server, because transport and era are the same for all clients.
    pub(crate) async fn any_or_learn(
        &self,
        asker: ProfileRequest<'_>,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let identity = asker.identity().await?;
        match (self.any(identity), asker.opener) {
            (Some(known), _) => Ok(known),
            (None, Some(client_info)) => self.get_for(asker, client_info).await,
            (None, None) => self.learned(asker, identity, ClientInfo::default()).await,
        }
    }

    /// Returns any cached profile of the server, for any client capabilities.
    fn any(&self, identity: Identity) -> Option<Arc<Profile>> {
        let kinds = self.kinds.lock().get(&identity).cloned().unwrap_or_default();
        std::iter::once(identity).chain(kinds).find_map(|one| self.known(one))
    }

    /// Whether the server is probed for one more set of client capabilities.
    fn admits(&self, identity: Identity, kind: Identity) -> bool {
        let kinds = self.kinds.lock();
        kinds
            .get(&identity)
            .is_none_or(|kinds| kinds.len() < MAX_PROBED_CAPABILITIES || kinds.contains(&kind))
    }

    async fn learned(
        &self,
        asker: ProfileRequest<'_>,
        identity: Identity,
        client_info: ClientInfo,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let ProfileRequest { links, server, scope, opener: keep_for } = asker;
        // The link of an opener is one of its client, whose capabilities count on a link of one session only.
        let client_info = keep_for.map_or(client_info, |it| it.on_link_of(scope));
        let opener = links.opener();
        let entry = self.entry(identity);
        let plain = asker.plain_identity().await?.map(|plain| self.entry(plain));
        // A server that refused the legacy era is the same for clients of both eras.
        let same = plain.as_ref().and_then(|plain| plain.known());
        if let Some(same) = same.filter(|same| same.protocol() == ServerProtocol::Modern) {
            entry.set(same);
        }
        let mut waited = None;
        loop {
            if self.closed.load(Ordering::SeqCst) {
                return Err(Arc::new(ended(server)));
            }
            let changed = entry.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match entry.enter(waited, server, scope) {
                ProfileStep::Known(profile) => return Ok(profile),
                ProfileStep::Failed(error) => return Err(error),
                ProfileStep::Wait(attempt) => waited = Some(attempt),
                ProfileStep::Learn(attempt, completion) => {
                    waited = Some(attempt);
                    let learn_task = LearnTask {
                        entry: entry.clone(),
                        plain: plain.clone(),
                        attempt,
                        links: links.clone(),
                        opener: opener.clone(),
                        server: server.clone(),
                        scope: scope.clone(),
                        client_info: client_info.clone(),
                        // A server with spares has one for the session.
                        is_kept: keep_for.is_some()
                            && server.is_process()
                            && server.options().warm.count == 0,
                        completion,
                    };
                    // The first session may take over the link, and calls on it.
                    let runtime = Worker::runtime_or(&opener.runtime);
                    let task = runtime.spawn(learn_task.run());
                    entry.learning(attempt, task.abort_handle());
                }
            }
            changed.await;
        }
    }

    /// Fetches the lists again on a link whose server reported a change, or if a list is missing. Concurrent
    /// requests wait for the same answers.
    pub(crate) async fn relearn(
        &self,
        profile_key: ProfileKey<'_>,
        link: &Link,
    ) -> Option<Arc<Profile>> {
        let entry = self.own(profile_key);
        let _one = entry.relearning.lock().await;
        self.relearn_alone(profile_key, &entry, link).await
    }

    async fn relearn_alone(
        &self,
        profile_key: ProfileKey<'_>,
        entry: &ProfileEntry,
        link: &Link,
    ) -> Option<Arc<Profile>> {
        let known = entry.known().or_else(|| self.known(profile_key))?;
        let changes = link.lists_changed();
        if changes == 0 && known.is_whole() {
            return Some(known);
        }
        // Marked as fetched even on a timeout, so that a silent server is not asked again before its next change.
        let result = tokio::time::timeout(RELEARN_TIMEOUT, known.relearned(link)).await;
        link.lists_learned(changes);
        let Ok(profile) = result else { return Some(known) };
        let profile = Arc::new(profile);
        entry.set(profile.clone());
        // Profiles for other client capabilities may differ and are dropped.
        let kinds = self.kinds.lock().get(&profile_key.identity).cloned().unwrap_or_default();
        kinds.into_iter().for_each(|kind| self.entry(kind).clear());
        Some(profile)
    }

    /// Returns the cached profile after a check for reported list changes. `links` returns the links with
    /// changes, the preferred one first. `changes` counts the reports of all links, and skips the check if it
    /// did not grow.
    pub(crate) async fn current(
        &self,
        profile_key: ProfileKey<'_>,
        changes: u64,
        links: impl FnOnce() -> Vec<Link>,
    ) -> Option<Arc<Profile>> {
        if changes == 0 {
            return self.known(profile_key);
        }
        let entry = self.own(profile_key);
        if entry.looked.load(Ordering::Acquire) >= changes {
            return self.known(profile_key);
        }
        let _one = entry.relearning.lock().await;
        let known = self.known(profile_key)?;
        if entry.looked.load(Ordering::Acquire) >= changes {
            return Some(known);
        }
        let links = links();
        let profile = match links.split_first() {
            None => Some(known),
            Some((first, others)) => {
                let counts: Vec<u64> = others.iter().map(|link| link.lists_changed()).collect();
                let profile = self.relearn_alone(profile_key, &entry, first).await;
                // Mark the changes on the other links as fetched: a session that has such a link can fetch
                // there, and for all others one link is as good as another.
                others.iter().zip(counts).for_each(|(link, count)| link.lists_learned(count));
                profile
            }
        };
        entry.looked.store(changes, Ordering::Release);
        profile
    }

    /// Aborts learning tasks that use the scope of this session. Their waiters start again in another scope.
    /// Returns what to wait for.
    pub(crate) fn end(&self, session: SessionId) -> Vec<Arc<Flag>> {
        self.stop(|scope| scope.session() == Some(session))
    }

    /// Aborts all learning tasks and starts no more.
    pub(crate) fn close(&self) -> Vec<Arc<Flag>> {
        self.closed.store(true, Ordering::SeqCst);
        self.stop(|_| true)
    }

    fn stop(&self, which: impl Fn(&Scope) -> bool) -> Vec<Arc<Flag>> {
        let all: Vec<_> = self.learned.lock().values().cloned().collect();
        all.iter().filter_map(|learned| learned.stop(&which)).collect()
    }
}

impl ProfileRequest<'_> {
    async fn identity(self) -> Result<Identity, LinkOpenError> {
        self.links.opener().profile_identity(self.server, self.scope).await
    }

    /// Identity of the profile for legacy clients, if this one is for modern clients.
    async fn plain_identity(self) -> Result<Option<Identity>, LinkOpenError> {
        if self.server.preferred_era() == Era::Legacy {
            return Ok(None);
        }
        let opener = self.links.opener();
        opener.profile_identity_for(Era::Legacy, self.server, self.scope).await.map(Some)
    }
}

fn ended(server: &Server) -> LinkOpenError {
    LinkOpenError::Ended { server: server.name().to_owned() }
}

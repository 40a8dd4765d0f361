//! Cache of server profiles. Each is learned once.

mod profile_entry;
mod url_probe;

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use stayput_core::{Owner, SessionId};
use stayput_http::Worker;
use stayput_wire::Era;

use self::{
    profile_entry::{ProfileEntry, ProfileStep},
    url_probe::{LEGACY, MODERN, UrlProbe},
};
use crate::{
    ClientInfo, Cost, EraChoice, Identity, Isolation, Link, LinkOpenError, Links, LossReason,
    Profile, Scope, Server, ServerProtocol,
    budget::link_permit::LinkPermit,
    open::{
        handshake::{self, HandshakeAttempt, HandshakeError},
        opener::{OpenRequest, Opener},
    },
    pool::probed_links::ProbedLink,
    util::{
        flag::{CompletionGuard, Flag},
        lock::lock,
    },
};

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

/// Identity of a profile and the owner that requests it. No owner where all owners see the same.
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
        lock(&self.learned).entry(identity).or_default().clone()
    }

    /// Returns the cache entry for lists of this owner.
    fn own(&self, profile_key: ProfileKey<'_>) -> Arc<ProfileEntry> {
        let Some(owner) = profile_key.owner else { return self.entry(profile_key.identity) };
        let mut changed = lock(&self.changed);
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
            let changed = lock(&self.changed);
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
        let mut kinds = lock(&self.kinds);
        let kinds = kinds.entry(identity).or_default();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
        Ok(profile)
    }

    /// Returns any profile of the server, because transport and era are the same for all clients.
    pub(crate) async fn spoken(
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
        let kinds = lock(&self.kinds).get(&identity).cloned().unwrap_or_default();
        std::iter::once(identity).chain(kinds).find_map(|one| self.known(one))
    }

    /// Whether the server is probed for one more set of client capabilities.
    fn admits(&self, identity: Identity, kind: Identity) -> bool {
        let kinds = lock(&self.kinds);
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
                    let lesson = LearnTask {
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
                    let task = runtime.spawn(lesson.run());
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
        let kinds = lock(&self.kinds).get(&profile_key.identity).cloned().unwrap_or_default();
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
        let all: Vec<_> = lock(&self.learned).values().cloned().collect();
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

/// One attempt to learn a profile.
struct LearnTask {
    entry: Arc<ProfileEntry>,
    /// Entry for legacy clients, if this one is for modern clients.
    plain: Option<Arc<ProfileEntry>>,
    attempt: u64,
    links: Links,
    opener: Arc<Opener>,
    server: Server,
    scope: Scope,
    client_info: ClientInfo,
    /// Whether the process is kept for the session that follows.
    is_kept: bool,
    completion: CompletionGuard,
}

impl LearnTask {
    async fn run(self) {
        let (learned, link) = match self.learn().await {
            Ok((profile, link)) => (Ok(profile), link),
            Err(error) => (Err(error), None),
        };
        // A server of one era has one profile for all clients.
        if let (Ok(profile), Some(plain)) = (&learned, &self.plain)
            && !profile.is_dual()
            && plain.known().is_none()
        {
            plain.set(Arc::new(profile.clone()));
        }
        // Before the waiters are woken, because one of them takes it.
        let kept = link.map(|link| {
            let (server, scope) = (self.server.clone(), self.scope.clone());
            let client_info = self.client_info.clone();
            self.links.keep_probed(ProbedLink { link, server, scope, client_info })
        });
        let is_current = self.entry.done(self.attempt, learned);
        if let Some(number) = kept.filter(|_| !is_current) {
            // The session has ended meanwhile.
            self.links.end_probed(number);
        }
    }

    async fn learn(&self) -> Result<(Profile, Option<Link>), LinkOpenError> {
        let server = &self.server;
        let plan = OpenRequest { server, scope: &self.scope, client_info: &self.client_info };
        let mut first = None;
        let mut attempts = attempts(server);
        while let Some(attempt) = attempts.pop_front() {
            let permit = self.permit().await?;
            let timeouts = server.options().timeouts;
            let probe = if attempt == MODERN && attempts.front() == Some(&LEGACY) {
                self.probe_url(plan, permit).await
            } else {
                // The last way to try gets the longer timeout, for servers that start slowly.
                let other = attempt == MODERN && !attempts.is_empty();
                let limit = if other { timeouts.probe } else { timeouts.open };
                let result = self.opener.discover(plan, attempt, permit, limit).await;
                UrlProbe { attempt, result, is_legacy_tried: false }
            };
            let UrlProbe { attempt, result, is_legacy_tried } = probe;
            if is_legacy_tried {
                attempts.retain(|other| *other != LEGACY);
            }
            match result {
                Ok(link) => return Ok(self.profile(link, attempt).await),
                // The first refusal is the most informative one.
                Err(HandshakeError::OtherEra(error)) => {
                    first.get_or_insert(error);
                }
                Err(HandshakeError::Confused(_)) => attempts = VecDeque::from([MODERN]),
                // Some legacy servers exit at a method that they do not know.
                Err(HandshakeError::Failed(LinkOpenError::Exited { .. }))
                    if attempt == HandshakeAttempt::ModernOrLegacy => {}
                Err(HandshakeError::Failed(error)) => return Err(first.unwrap_or(error)),
            }
        }
        Err(first.unwrap_or_else(|| ended(server)))
    }

    /// Learns the profile on a temporary link. Returns the link if it is kept for a session, and ends it otherwise.
    async fn profile(&self, link: Link, attempt: HandshakeAttempt) -> (Profile, Option<Link>) {
        let protocol = match (attempt, link.era()) {
            (HandshakeAttempt::Only(protocol), _) => protocol,
            (HandshakeAttempt::ModernOrLegacy, Era::Legacy) => ServerProtocol::Legacy,
            (HandshakeAttempt::ModernOrLegacy, Era::Modern) => ServerProtocol::Modern,
        };
        let mut profile = Profile::new(protocol, link.initialize_result().clone());
        profile.learn_lists(&link).await;
        let versions = handshake::versions(profile.initialize_result().result());
        let says_dual = versions.iter().any(|version| version.era() == Era::Legacy);
        let is_asked = protocol == ServerProtocol::Modern && self.plain.is_some() && !says_dual;
        // Another process in the same session directory could be in its way.
        let is_kept = self.is_kept && !(is_asked && self.server.depends_on_session());
        if !is_kept {
            end(&link).await;
        }
        if protocol == ServerProtocol::Modern && self.plain.is_some() {
            profile.set_dual(says_dual || self.accepts_initialize().await);
        }
        (profile, is_kept.then_some(link))
    }

    /// Whether a modern server accepts `initialize`, too.
    async fn accepts_initialize(&self) -> bool {
        let (server, scope) = (&self.server, &self.scope);
        let plan = OpenRequest { server, scope, client_info: &self.client_info };
        let Ok(permit) = self.permit().await else { return true };
        let limit = server.options().timeouts.open;
        let legacy = HandshakeAttempt::Only(ServerProtocol::Legacy);
        match self.opener.discover(plan, legacy, permit, limit).await {
            Ok(link) => {
                end(&link).await;
                true
            }
            Err(HandshakeError::OtherEra(_)) => false,
            // In doubt its state is kept apart.
            Err(HandshakeError::Failed(_) | HandshakeError::Confused(_)) => true,
        }
    }

    async fn permit(&self) -> Result<LinkPermit, LinkOpenError> {
        let cost = Cost { process: self.server.is_process() };
        let permit = self.opener.budget.admit(self.scope.owner(), cost, &self.links).await?;
        Ok(LinkPermit::new(permit, self.completion.clone()))
    }
}

/// Ends a temporary link for good, with its session on the server.
async fn end(link: &Link) {
    link.close(LossReason::Ended);
    link.gone().await;
}

impl Drop for LearnTask {
    /// Completes the attempt if the task was aborted or panicked, so that its waiters are woken.
    fn drop(&mut self) {
        self.entry.done(self.attempt, Err(ended(&self.server)));
    }
}

/// Transports and eras to try, in order.
///
/// A server that speaks both eras is used in the era of the client, and some servers fix the era with the first
/// message: so the preferred era is tried first. After a refusal the next try gets a new link.
fn protocols(server: &Server) -> &'static [ServerProtocol] {
    match (server.options().era, server.options().isolation, server.preferred_era()) {
        (EraChoice::Legacy, ..) => &[ServerProtocol::Legacy, ServerProtocol::Sse],
        (EraChoice::Modern, ..) => &[ServerProtocol::Modern],
        (EraChoice::Auto, Some(Isolation::Shared), _) | (EraChoice::Auto, _, Era::Modern) => {
            &[ServerProtocol::Modern, ServerProtocol::Legacy, ServerProtocol::Sse]
        }
        (EraChoice::Auto, _, Era::Legacy) => {
            &[ServerProtocol::Legacy, ServerProtocol::Modern, ServerProtocol::Sse]
        }
    }
}

/// Handshakes to try, in order. A process that refuses the modern era gets the legacy handshake at once.
fn attempts(server: &Server) -> VecDeque<HandshakeAttempt> {
    let mut protocols: VecDeque<_> =
        protocols(server).iter().copied().filter(|protocol| fits(server, *protocol)).collect();
    let both = server.is_process() && protocols.len() > 1;
    let mut attempts = VecDeque::new();
    if both && protocols.front() == Some(&ServerProtocol::Modern) {
        protocols.pop_front();
        attempts.push_back(HandshakeAttempt::ModernOrLegacy);
    }
    attempts.extend(protocols.into_iter().map(HandshakeAttempt::Only));
    attempts
}

/// Whether the configured era of the server allows this protocol.
pub(crate) fn is_allowed(server: &Server, protocol: ServerProtocol) -> bool {
    protocols(server).contains(&protocol) && fits(server, protocol)
}

fn fits(server: &Server, protocol: ServerProtocol) -> bool {
    match protocol {
        ServerProtocol::Sse => !server.is_process(),
        ServerProtocol::Legacy | ServerProtocol::Modern => !server.is_sse(),
    }
}

fn ended(server: &Server) -> LinkOpenError {
    LinkOpenError::Ended { server: server.name().to_owned() }
}

//! Learns the profile of a server: tries the handshakes that its configuration allows, on temporary links.

use std::{collections::VecDeque, sync::Arc};

use stayput_wire::Era;

use super::{
    ended,
    profile_entry::ProfileEntry,
    url_probe::{LEGACY, MODERN, UrlProbe},
};
use crate::{
    ClientInfo, Cost, EraChoice, Isolation, Link, LinkOpenError, Links, LossReason, Profile, Scope,
    Server, ServerProtocol,
    budget::link_permit::LinkPermit,
    open::{
        handshake::{self, HandshakeAttempt, HandshakeError},
        opener::{OpenRequest, Opener},
    },
    pool::probed_links::ProbedLink,
    util::flag::CompletionGuard,
};

/// One attempt to learn a profile.
pub(super) struct LearnTask {
    pub(super) entry: Arc<ProfileEntry>,
    /// Entry for legacy clients, if this one is for modern clients.
    pub(super) plain: Option<Arc<ProfileEntry>>,
    pub(super) attempt: u64,
    pub(super) links: Links,
    pub(super) opener: Arc<Opener>,
    pub(super) server: Server,
    pub(super) scope: Scope,
    pub(super) client_info: ClientInfo,
    /// Whether the process is kept for the session that follows.
    pub(super) is_kept: bool,
    pub(super) completion: CompletionGuard,
}

impl LearnTask {
    pub(super) async fn run(self) {
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
pub(super) async fn end(link: &Link) {
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

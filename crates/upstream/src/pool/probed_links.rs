//! Links that were opened to probe a server and wait for the session that follows.

use std::{sync::Arc, time::Duration};

use stayput_sync::Mutex;
use stayput_wire::Era;
use tokio::{task::AbortHandle, time::Instant};

use super::{Links, pool_entry::EndingLink, spares::SpareReport};
use crate::{
    ClientInfo, Identity, Link, LossReason, RecycleFilter, Scope, Server,
    util::flag::CompletionGuard,
};

/// Time for which such a link waits.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Links to processes that were opened to probe a server. Each one serves one session, so that a server that starts
/// slowly is not started twice for its first client.
#[derive(Debug, Default)]
pub(super) struct ProbedLinks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<WaitingLink>,
    /// Number of links ever kept.
    kept: u64,
    closed: bool,
}

#[derive(Debug)]
struct WaitingLink {
    number: u64,
    since: Instant,
    probed: ProbedLink,
    _timer: Timer,
}

/// Task that ends a link after [`MAX_WAIT`]. It is stopped on drop.
#[derive(Debug)]
struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Link on which nothing was sent but the handshake and requests for lists. On drop it is ended in the background.
#[derive(Debug)]
pub(crate) struct ProbedLink {
    pub(crate) link: Link,
    pub(crate) server: Server,
    /// Scope whose template values and directories the link was opened with.
    pub(crate) scope: Scope,
    /// Client that the server was told of.
    pub(crate) client_info: ClientInfo,
}

/// Properties of the link that is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedLink<'a> {
    pub(super) server: &'a Server,
    pub(super) scope: &'a Scope,
    pub(super) era: Era,
    pub(super) client_info: &'a ClientInfo,
}

impl ProbedLink {
    fn fits(&self, wanted: WantedLink<'_>) -> bool {
        let WantedLink { server, scope, era, client_info } = wanted;
        (self.server.name(), self.server.configuration()) == (server.name(), server.configuration())
            // Another window can have other values in its environment.
            && self.server.has_ambient_of(server)
            && self.link.era() == era
            && self.is_told_of(client_info, scope)
            && self.fits_scope(scope)
    }

    /// Whether the server may take this client for the one it was told of. Modern requests say themselves who the client
    /// is, and a link that several sessions share is used by other clients anyway.
    fn is_told_of(&self, client_info: &ClientInfo, scope: &Scope) -> bool {
        let is_any_client = self.link.era() == Era::Modern || scope.session().is_none();
        let declares_nothing =
            !self.client_info.declares_anything() && !client_info.declares_anything();
        self.client_info == *client_info || (is_any_client && declares_nothing)
    }

    /// Whether a process with the values of one scope can serve the other one. It never serves another owner.
    fn fits_scope(&self, scope: &Scope) -> bool {
        if self.scope == *scope {
            return true;
        }
        let server = &self.server;
        match (&self.scope, scope) {
            _ if server.depends_on_session() => false,
            (
                Scope::Session { owner, .. },
                Scope::Session { owner: other, .. } | Scope::Owner(other),
            ) => owner == other,
            (Scope::Session { .. }, Scope::Shared) => !server.depends_on_owner(),
            _ => false,
        }
    }
}

impl ProbedLinks {
    /// Keeps a link. Returns the number under which it can be removed. After [`ProbedLinks::close`] the link is ended
    /// at once.
    pub(super) fn keep(&self, links: &Links, probed: ProbedLink) -> u64 {
        let mut state = self.0.lock();
        state.kept += 1;
        let number = state.kept;
        if state.closed {
            return number;
        }
        let weak = Arc::downgrade(&links.0);
        let timer = links.0.opener.runtime.spawn(async move {
            tokio::time::sleep(MAX_WAIT).await;
            if let Some(inner) = weak.upgrade() {
                inner.probed.remove(number);
            }
        });
        let timer = Timer(timer.abort_handle());
        state.waiting.push(WaitingLink { number, since: Instant::now(), probed, _timer: timer });
        number
    }

    /// Ends a link that still waits.
    pub(super) fn remove(&self, number: u64) {
        drop(self.extract(|it| it.number == number));
    }

    /// Takes a live link that fits, for the attempt with this `completion`. `None` also if its owner is at its limit.
    pub(super) fn take(
        &self,
        wanted: WantedLink<'_>,
        completion: &CompletionGuard,
    ) -> Option<Link> {
        let dead = self.extract(|it| it.probed.link.loss().is_some());
        drop(dead);
        let found = {
            let mut state = self.0.lock();
            let at = state.waiting.iter().position(|it| it.probed.fits(wanted))?;
            state.waiting.swap_remove(at)
        };
        let link = found.probed.link;
        link.assign(wanted.server, wanted.scope, completion.clone()).ok()?;
        Some(link)
    }

    /// Reports the links that wait as spares.
    pub(super) fn report(&self) -> Vec<SpareReport> {
        let state = self.0.lock();
        let alive = state.waiting.iter().filter(|it| it.probed.link.loss().is_none());
        let report = |it: &WaitingLink| SpareReport {
            server: it.probed.server.shared_name(),
            pid: it.probed.link.pid(),
            age: it.since.elapsed(),
            meter: it.probed.link.memory_meter(),
        };
        alive.map(report).collect()
    }

    /// Ends the link that has waited longest, to free its permit.
    pub(super) fn give_up_one(&self, wanted: RecycleFilter<'_>) -> bool {
        let found = {
            let mut state = self.0.lock();
            let is_of = |it: &WaitingLink| {
                wanted.owner.is_none() || it.probed.scope.owner() == wanted.owner
            };
            let at = state.waiting.iter().position(is_of);
            at.map(|at| state.waiting.remove(at))
        };
        found.is_some()
    }

    /// Ends links by scope. Returns what to wait for.
    pub(super) fn end(
        &self,
        reason: LossReason,
        which: impl Fn(&Scope) -> bool,
    ) -> Vec<EndingLink> {
        ending(self.extract(|it| which(&it.probed.scope)), reason)
    }

    /// Ends the links of earlier configurations of a server. Returns what to wait for.
    pub(super) fn end_all(&self, name: &str, keep: Option<Identity>) -> Vec<EndingLink> {
        let is_old = |it: &WaitingLink| {
            let server = &it.probed.server;
            server.name() == name && Some(server.configuration()) != keep
        };
        ending(self.extract(is_old), LossReason::Reconfigured)
    }

    /// Ends all links and keeps no more. Returns what to wait for.
    pub(super) fn close(&self) -> Vec<EndingLink> {
        self.0.lock().closed = true;
        ending(self.extract(|_| true), LossReason::Released)
    }

    fn extract(&self, which: impl Fn(&WaitingLink) -> bool) -> Vec<WaitingLink> {
        self.0.lock().waiting.extract_if(.., |it| which(it)).collect()
    }
}

fn ending(links: Vec<WaitingLink>, reason: LossReason) -> Vec<EndingLink> {
    let end = |it: WaitingLink| {
        it.probed.link.close(reason);
        EndingLink::Link(it.probed.link)
    };
    links.into_iter().map(end).collect()
}

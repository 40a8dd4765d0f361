//! Processes that were started before anybody asked for them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use tokio::time::Instant;

use super::Links;
use crate::{
    Cost, Identity, Permit, Resolved, Scope, Server, Wanted,
    lock::lock,
    process::{Child, Grace},
};

/// Warm spares: processes that are started ahead, by the configuration of their server.
///
/// Nothing is sent to a spare before it is taken, and it is taken once, by one session. Servers whose
/// command or environment depends on session or owner have none: they could not be anybody's.
#[derive(Debug, Default)]
pub(super) struct Spares(Mutex<HashMap<Identity, Stock>>);

#[derive(Debug)]
struct Stock {
    server: Server,
    ready: Vec<Spare>,
    /// How many are being started.
    coming: usize,
}

#[derive(Debug)]
struct Spare {
    child: Child,
    permit: Permit,
    born: Instant,
}

impl Spare {
    fn is_good(&self, server: &Server) -> bool {
        self.child.exited().is_none() && self.born.elapsed() < server.options().warm.max_age
    }

    /// Ends it, in the background. Its place is free when it is gone.
    fn discard(self, links: &Links) {
        let Self { child, permit, .. } = self;
        permit.leaving();
        links.0.opener.runtime.spawn(async move {
            // It was told nothing, so there is nothing that it should need time for.
            child.end(Grace { quit: Duration::ZERO, term: Duration::from_secs(1) }).await;
            drop(permit);
        });
    }
}

impl Spares {
    /// Keeps spares of this server from now on.
    pub(super) fn want(&self, links: &Links, server: &Server) {
        let depends = server.depends_on_session() || server.depends_on_owner();
        if !server.is_process() || depends || server.options().warm.count == 0 {
            return;
        }
        let stock = Stock { server: server.clone(), ready: Vec::new(), coming: 0 };
        let first = {
            let mut stocks = lock(&self.0);
            let first = stocks.is_empty();
            stocks.entry(server.configuration()).or_insert(stock);
            first
        };
        self.refill(links, server.configuration());
        if first {
            links.0.opener.runtime.spawn(tend(Arc::downgrade(&links.0)));
        }
    }

    /// Takes one that is alive and young, for whoever `scope` says, and has it replaced.
    pub(super) fn take(
        &self,
        links: &Links,
        server: &Server,
        scope: &Scope,
    ) -> Option<(Permit, Child)> {
        let mut stale = Vec::new();
        let taken = {
            let mut stocks = lock(&self.0);
            let ready = &mut stocks.get_mut(&server.configuration())?.ready;
            let mut taken = None;
            while let Some(spare) = ready.pop() {
                if spare.is_good(server) {
                    taken = Some(spare);
                    break;
                }
                stale.push(spare);
            }
            taken
        };
        stale.into_iter().for_each(|spare| spare.discard(links));
        self.refill(links, server.configuration());
        let Spare { child, mut permit, born } = taken?;
        if let Some(owner) = scope.owner()
            && permit.assign(owner).is_err()
        {
            // At the owner's own limit it waits in line like anybody else.
            self.put_back(server, Spare { child, permit, born });
            return None;
        }
        Some((permit, child))
    }

    fn put_back(&self, server: &Server, spare: Spare) {
        if let Some(stock) = lock(&self.0).get_mut(&server.configuration()) {
            stock.ready.push(spare);
        }
    }

    /// Replaces those that died or became too old. Says when to look again.
    fn tend(&self, links: &Links) -> Duration {
        let mut stale = Vec::new();
        let mut again = SLOWEST;
        {
            let mut stocks = lock(&self.0);
            for Stock { server, ready, .. } in stocks.values_mut() {
                again = again.min(server.options().warm.max_age / 4);
                stale.extend(ready.extract_if(.., |spare| !spare.is_good(server)));
            }
        }
        stale.into_iter().for_each(|spare| spare.discard(links));
        let all: Vec<Identity> = lock(&self.0).keys().copied().collect();
        all.into_iter().for_each(|identity| self.refill(links, identity));
        again.max(QUICKEST)
    }

    /// Starts as many as are missing, each in the background.
    fn refill(&self, links: &Links, identity: Identity) {
        let missing = {
            let mut stocks = lock(&self.0);
            let Some(stock) = stocks.get_mut(&identity) else { return };
            let wanted = stock.server.options().warm.count;
            let missing = wanted.saturating_sub(stock.ready.len() + stock.coming);
            stock.coming += missing;
            missing
        };
        for _ in 0..missing {
            let coming = Coming { links: Arc::downgrade(&links.0), identity };
            links.0.opener.runtime.spawn(coming.run());
        }
    }

    /// Lets one go to make room for a link that somebody wants.
    pub(super) fn give_up_one(&self, links: &Links, wanted: Wanted<'_>) -> bool {
        if wanted.owner.is_some() {
            return false;
        }
        let spare = lock(&self.0).values_mut().find_map(|stock| stock.ready.pop());
        spare.map(|spare| spare.discard(links)).is_some()
    }

    /// Lets go of the spares of a server that is configured otherwise now.
    pub(super) fn drop_all(&self, links: &Links, name: &str, keep: Option<Identity>) {
        let old: Vec<Stock> = {
            let mut stocks = lock(&self.0);
            stocks
                .extract_if(|identity, stock| {
                    stock.server.name() == name && Some(*identity) != keep
                })
                .map(|(_, stock)| stock)
                .collect()
        };
        old.into_iter().flat_map(|stock| stock.ready).for_each(|spare| spare.discard(links));
    }

    /// Lets go of all, for good.
    pub(super) fn close(&self, links: &Links) {
        let all = std::mem::take(&mut *lock(&self.0));
        all.into_values().flat_map(|stock| stock.ready).for_each(|spare| spare.discard(links));
    }
}

/// How often spares are looked after, at most and at least.
const QUICKEST: Duration = Duration::from_millis(50);
const SLOWEST: Duration = Duration::from_secs(60);

/// Looks after all spares, for as long as there are servers that want some.
async fn tend(links: Weak<super::Inner>) {
    loop {
        let pause = {
            let Some(links) = links.upgrade().map(Links) else { return };
            if lock(&links.0.spares.0).is_empty() {
                return;
            }
            links.0.spares.tend(&links)
        };
        tokio::time::sleep(pause).await;
    }
}

/// One spare that is being started.
struct Coming {
    links: Weak<super::Inner>,
    identity: Identity,
}

impl Coming {
    async fn run(self) {
        let Some(spare) = self.start().await else { return };
        let Some(links) = self.links.upgrade().map(Links) else { return };
        let refused = match lock(&links.0.spares.0).get_mut(&self.identity) {
            Some(stock) => {
                stock.ready.push(spare);
                None
            }
            None => Some(spare),
        };
        if let Some(spare) = refused {
            spare.discard(&links);
        }
    }

    async fn start(&self) -> Option<Spare> {
        let inner = self.links.upgrade()?;
        let server = lock(&inner.spares.0).get(&self.identity)?.server.clone();
        let permit = inner.opener.budget.try_admit(None, Cost { process: true })?;
        let expansion = inner.opener.folders.expansion(&server, &Scope::Shared).await.ok()?;
        let Ok(Resolved::Stdio(launch)) = server.resolve(&expansion) else { return None };
        let child = inner.opener.start(&server, &launch).await.ok()?;
        Some(Spare { child, permit, born: Instant::now() })
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if let Some(inner) = self.links.upgrade()
            && let Some(stock) = lock(&inner.spares.0).get_mut(&self.identity)
        {
            stock.coming -= 1;
        }
    }
}

//! Replicas that are known to live.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use stayput_core::{Holder, HolderId};
use stayput_http::{Target, TargetError};
use tokio::sync::watch;

/// One replica.
pub(super) struct Peer {
    pub(super) holder: Holder,
    /// URL of its internal listener.
    base: String,
    /// True when its lease was found dead.
    dead: watch::Sender<bool>,
}

impl Peer {
    fn new(holder: &Holder) -> Self {
        let base = holder.address.trim_end_matches('/').to_owned();
        Self { holder: holder.clone(), base, dead: watch::Sender::new(false) }
    }

    /// Returns the URL of a path at this replica.
    pub(super) fn target(&self, path: &str) -> Result<Target, TargetError> {
        Target::parse(&format!("{}{path}", self.base))
    }

    /// Waits until the lease of the replica is found dead: it will not answer any more.
    pub(super) fn died(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut dead = self.dead.subscribe();
        async move {
            let _ = dead.wait_for(|dead| *dead).await;
        }
    }
}

/// Replicas by their ids.
#[derive(Default)]
pub(super) struct Peers(RwLock<HashMap<HolderId, Arc<Peer>>>);

impl Peers {
    /// Returns a replica, which the store has named. It may be newer than the last read of the registry.
    pub(super) fn get(&self, holder: &Holder) -> Arc<Peer> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&holder.id).cloned();
        if let Some(known) = known.filter(|it| it.holder.address == holder.address) {
            return known;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let peer = Arc::new(Peer::new(holder));
        all.insert(holder.id, peer.clone());
        peer
    }

    /// Returns the replica with this id.
    pub(super) fn find(&self, id: &str) -> Option<Holder> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&id.parse().ok()?).map(|peer| peer.holder.clone())
    }

    /// Returns all replicas.
    pub(super) fn all(&self) -> Vec<Holder> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.values().map(|peer| peer.holder.clone()).collect()
    }

    /// Sets the replicas that live. Returns those that do not any more; requests in flight to them fail.
    pub(super) fn update(&self, live: impl Iterator<Item = Holder>) -> Vec<Holder> {
        let live: HashMap<HolderId, Holder> = live.map(|it| (it.id, it)).collect();
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_gone = |peer: &Arc<Peer>| {
            live.get(&peer.holder.id).is_none_or(|it| it.address != peer.holder.address)
        };
        let gone: Vec<_> = all.extract_if(|_, peer| is_gone(peer)).collect();
        for (id, holder) in &live {
            all.entry(*id).or_insert_with(|| Arc::new(Peer::new(holder)));
        }
        drop(all);
        gone.into_iter()
            .map(|(_, peer)| {
                peer.dead.send_replace(true);
                peer.holder.clone()
            })
            .collect()
    }
}

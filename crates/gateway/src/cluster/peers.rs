//! Replicas that are known to live.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use stayput_core::{Holder, HolderId, Lease};
use stayput_http::Target;
use stayput_sync::{Mutex, RwLock};
use tokio::{sync::watch, time::Instant};

use super::registry::LiveGateway;

/// Replica as the registry has it.
#[derive(Clone, Debug)]
pub(super) struct PeerState {
    pub(super) holder: Holder,
    lease: Lease,
    is_draining: bool,
}

impl PeerState {
    pub(super) fn new(gateway: &LiveGateway) -> Self {
        Self {
            holder: gateway.holder.clone(),
            lease: gateway.lease,
            is_draining: gateway.row.draining,
        }
    }
}

/// One replica.
pub(super) struct Peer {
    pub(super) holder: Holder,
    /// Internal listener. `None` if the address is no URL.
    base: Option<Target>,
    /// True when its lease was found dead.
    dead: watch::Sender<bool>,
    /// Time at which this gateway learned of it.
    added: Instant,
    /// Whether it takes no new sessions.
    draining: AtomicBool,
    /// Whether a request to it got no answer since its lease was read last.
    is_suspect: AtomicBool,
    /// Lease, as the registry had it last.
    lease: Mutex<Option<Lease>>,
}

impl Peer {
    fn new(holder: &Holder) -> Self {
        let base = Target::parse(&holder.address).ok();
        Self {
            holder: holder.clone(),
            base,
            dead: watch::Sender::new(false),
            added: Instant::now(),
            draining: AtomicBool::new(false),
            is_suspect: AtomicBool::new(false),
            lease: Mutex::default(),
        }
    }

    /// Marks that a request got no answer: its lease is to be read soon.
    pub(super) fn suspect(&self) {
        self.is_suspect.store(true, Ordering::Relaxed);
    }

    /// Whether clients wait for the answers or the end of this replica.
    fn is_awaited(&self) -> bool {
        self.is_suspect.load(Ordering::Relaxed) || self.dead.receiver_count() > 0
    }

    fn set_state(&self, state: &PeerState) {
        self.draining.store(state.is_draining, Ordering::Relaxed);
        self.is_suspect.store(false, Ordering::Relaxed);
        *self.lease.lock() = Some(state.lease);
    }

    /// Returns the URL of a path at this replica. `None` if it cannot be sent.
    pub(super) fn target(&self, path: &str) -> Option<Target> {
        self.base.as_ref()?.with_path(path).ok()
    }

    /// Waits until the lease of the replica is found dead: it will not answer any more.
    pub(super) fn died(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        let peer = self.clone();
        async move {
            // The sender lives as long as `peer`, so the wait does not fail.
            let _ = peer.dead.subscribe().wait_for(|dead| *dead).await;
        }
    }
}

/// Replicas by their ids and addresses: a gateway that was started anew can have its former id at another address.
#[derive(Default)]
pub(super) struct Peers {
    all: RwLock<HashMap<(HolderId, String), Arc<Peer>>>,
    /// Number of the next one that gets a session.
    turn: AtomicUsize,
}

/// Returns the key of a replica.
fn key(holder: &Holder) -> (HolderId, String) {
    (holder.id, holder.address.clone())
}

impl Peers {
    /// Returns a replica, which the store has named. It may be newer than the last read of the registry.
    pub(super) fn get(&self, holder: &Holder) -> Arc<Peer> {
        let key = key(holder);
        let known = self.all.read().get(&key).cloned();
        known.unwrap_or_else(|| {
            let mut all = self.all.write();
            // Another request may have added it meanwhile.
            all.entry(key).or_insert_with(|| Arc::new(Peer::new(holder))).clone()
        })
    }

    /// Returns the replica with this id.
    pub(super) fn find(&self, id: &str) -> Option<Holder> {
        let all = self.all.read();
        let id: HolderId = id.parse().ok()?;
        let found = all.values().filter(|peer| peer.holder.id == id);
        found.max_by_key(|peer| peer.added).map(|peer| peer.holder.clone())
    }

    /// Returns all replicas.
    pub(super) fn all(&self) -> Vec<Holder> {
        let all = self.all.read();
        all.values().map(|peer| peer.holder.clone()).collect()
    }

    /// Returns one of the replicas that take new sessions, each in turn.
    pub(super) fn next(&self) -> Option<Holder> {
        let all = self.all.read();
        let takes = |peer: &&Arc<Peer>| !peer.draining.load(Ordering::Relaxed);
        let peers: Vec<_> = all.values().filter(takes).map(|peer| &peer.holder).collect();
        let mut peers: Vec<_> = peers.into_iter().filter(|it| !it.address.is_empty()).collect();
        peers.sort_unstable_by_key(|it| it.id.to_string());
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        peers.get(turn.checked_rem(peers.len())?).map(|&holder| holder.clone())
    }

    /// Returns the leases of the replicas that owe an answer, or have given none.
    pub(super) fn awaited_leases(&self) -> Vec<Lease> {
        let all = self.all.read();
        let awaited = all.values().filter(|peer| peer.is_awaited());
        awaited.filter_map(|peer| *peer.lease.lock()).collect()
    }

    /// Sets the replicas that lived at `since`. Returns those that do not any more; requests in flight to them fail. One
    /// that was added later may not have been registered yet, and stays.
    pub(super) fn update(
        &self,
        live: impl Iterator<Item = PeerState>,
        since: Instant,
    ) -> Vec<Holder> {
        let live: HashMap<_, _> = live.map(|it| (key(&it.holder), it)).collect();
        let mut all = self.all.write();
        let gone: Vec<_> =
            all.extract_if(|key, peer| peer.added < since && !live.contains_key(key)).collect();
        for (key, state) in live {
            let peer = all.entry(key).or_insert_with_key(|_| Arc::new(Peer::new(&state.holder)));
            peer.set_state(&state);
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn state(holder: &Holder, epoch: u64, is_draining: bool) -> PeerState {
        let lease = Lease { holder: holder.id, epoch: stayput_core::Epoch(epoch) };
        PeerState { holder: holder.clone(), lease, is_draining }
    }

    /// The lease of a replica is read while a request waits for its answer, and after one that got none.
    #[tokio::test]
    async fn lease_of_a_replica_that_owes_an_answer_is_awaited() {
        let (peers, holder) = (Peers::default(), Holder::at("http://127.0.0.1:1").unwrap());
        let update =
            |epoch| peers.update([state(&holder, epoch, false)].into_iter(), Instant::now());
        assert!(update(1).is_empty());
        assert!(peers.awaited_leases().is_empty(), "it owes no answer");
        let mut waiting = Box::pin(peers.get(&holder).died());
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(peers.awaited_leases(), [state(&holder, 1, false).lease]);
        // It was started anew: the request may have been sent to the new process.
        assert!(update(2).is_empty());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(waiting);
        assert!(peers.awaited_leases().is_empty());
        peers.get(&holder).suspect();
        assert_eq!(peers.awaited_leases(), [state(&holder, 2, false).lease], "it gave no answer");
        assert!(update(2).is_empty() && peers.awaited_leases().is_empty());
    }

    /// All requests to a replica wait for the same one to die, which a list from before its registration does not tell.
    #[tokio::test]
    async fn replica_dies_once_a_later_list_lacks_it() {
        let (peers, holder) = (Peers::default(), Holder::at("http://127.0.0.1:1").unwrap());
        let before = Instant::now();
        let (one, two) = (peers.get(&holder), peers.get(&holder));
        assert!(Arc::ptr_eq(&one, &two));
        assert!(peers.update(std::iter::empty(), before).is_empty());
        assert!(one.died().now_or_never().is_none());
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!(peers.update(std::iter::empty(), Instant::now()).len(), 1);
        assert!(one.died().now_or_never().is_some());
        let again = peers.get(&holder);
        assert!(again.died().now_or_never().is_none());
    }

    /// A gateway that starts anew at another address ends the requests to its former one, and no others.
    #[tokio::test]
    async fn replica_at_another_address_is_another_one() {
        let old = Holder::at("http://127.0.0.1:1").unwrap();
        let new = Holder { id: old.id, ..Holder::at("http://127.0.0.1:2").unwrap() };
        let peers = Peers::default();
        let (one, two) = (peers.get(&old), peers.get(&new));
        assert!(one.died().now_or_never().is_none());
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!(peers.update([state(&new, 1, false)].into_iter(), Instant::now()), [old]);
        assert!(one.died().now_or_never().is_some());
        assert!(two.died().now_or_never().is_none());
        assert_eq!(peers.find(&new.id.to_string()), Some(new));
    }

    /// New sessions of a draining replica go to the others in turn, and to none that drains, too.
    #[tokio::test]
    async fn draining_replica_gets_no_session() {
        let peers = Peers::default();
        assert_eq!(peers.next(), None);
        let at = |port| Holder::at(&format!("http://127.0.0.1:{port}")).unwrap();
        let all = [at(1), at(2), at(3)];
        let live = [state(&all[0], 1, false), state(&all[1], 2, true), state(&all[2], 3, false)];
        peers.update(live.into_iter(), Instant::now());
        let got: Vec<_> = (0..4).filter_map(|_| peers.next()).collect();
        assert_eq!(got.len(), 4);
        for holder in [&all[0], &all[2]] {
            assert_eq!(got.iter().filter(|it| *it == holder).count(), 2, "{got:?}");
        }
        peers.update(all.iter().map(|it| state(it, 1, true)), Instant::now());
        assert_eq!(peers.next(), None);
    }
}

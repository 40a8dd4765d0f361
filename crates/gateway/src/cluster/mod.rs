//! Other gateways on the same store: replicas.
//!
//! A session is held by one replica, which has its links. A request for it can arrive at any replica, and is forwarded
//! to the holder in one hop. The store decides who holds a session; nothing here does.
//!
//! | file | content |
//! |---|---|
//! | `registry.rs` | rows of all gateways in the store: address, lease, fingerprints of keys |
//! | `signature.rs`, `replay.rs` | signed requests between replicas, each accepted once |
//! | `forward.rs` | request to the holder of a session, and the certainty whether it ran |
//! | `contact.rs` | whether replicas reach each other, and whether their clocks agree |
//! | `messages.rs` | messages of servers outside of calls, for a client that listens at another replica |
//! | `proxied.rs` | answer of a replica, passed on to the client as it comes |
//! | `receipts.rs` | receipts for answers that report a loss: the client has got them |
//! | `holders.rs` | cache of the holders of sessions |
//! | `unread_events.rs` | events that clients have not read when a replica drains, in the store |
//! | `peers.rs` | replicas that are known to live |

mod contact;
mod forward;
mod holders;
mod messages;
mod peers;
mod proxied;
mod receipts;
pub(crate) mod registry;
mod replay;
mod signature;
mod unread_events;

use std::{fmt, sync::Arc};

use stayput_core::{EventIds, EventLog, Holder, StoreError};
use stayput_http::{Client, ClientError, ClientSettings, Proxy};
use tokio::time::Instant;

use self::{
    contact::Contacts,
    holders::HolderCache,
    peers::{PeerState, Peers},
    receipts::ReceiptsInFlight,
    registry::{LiveGateway, Registry},
    replay::ReplayGuard,
    signature::Signer,
    unread_events::UnreadEvents,
};
pub(crate) use self::{
    contact::{Contact, HELLO},
    forward::{
        CONNECTION, ConnectionEvent, ForwardOutcome, ForwardedRequest, PREFERENCE, PROFILE,
        SESSION, SESSION_STAYS, name_server, unknown,
    },
    messages::MESSAGES,
    receipts::{PendingReceipts, RECEIPTS},
    signature::{NOT_HELD, SignatureError, VerifiedRequest},
    unread_events::StoredStream,
};
use crate::{config::ClusterKey, observe::metrics::LabelledCounter};

/// Start of the paths of requests that no client has sent.
pub(crate) const INTERNAL: &str = "/cluster/";

/// Outcomes of a forwarded request.
pub(crate) const FORWARDED: [&str; 5] = ["answered", "not_held", "not_sent", "rejected", "unknown"];

/// This replica, and its view of the others.
pub(crate) struct Cluster {
    /// This replica.
    own: Holder,
    signer: Signer,
    replay: ReplayGuard,
    client: Client,
    registry: Registry,
    peers: Peers,
    contacts: Contacts,
    /// Outcomes of forwarded requests, for the metrics.
    pub(crate) forwarded: LabelledCounter,
    /// Holders of sessions, as far as requests have shown them.
    pub(crate) holders: HolderCache,
    /// Receipts that other replicas owe to this one.
    pub(crate) receipts: Arc<PendingReceipts>,
    receipts_in_flight: ReceiptsInFlight,
    /// Ids of events, which all replicas seal alike.
    pub(crate) event_ids: EventIds,
    /// Events of replicas that have drained.
    pub(crate) unread_events: UnreadEvents,
}

impl Cluster {
    /// Prepares the cooperation with other replicas. Nothing is sent yet.
    pub(crate) fn new(
        own: Holder,
        keys: &[ClusterKey],
        registry: Registry,
        (events, event_ids): (Arc<dyn EventLog>, EventIds),
    ) -> Result<Self, ClientError> {
        let settings = ClientSettings {
            proxy: Proxy::None,
            connect: forward::CONNECT_TIMEOUT,
            keep_alive: Some(forward::KEEP_ALIVE),
            ..ClientSettings::default()
        };
        Ok(Self {
            signer: Signer::new(keys),
            replay: ReplayGuard::default(),
            client: Client::new(&settings)?,
            registry,
            peers: Peers::default(),
            contacts: Contacts::default(),
            forwarded: LabelledCounter::new(&FORWARDED),
            holders: HolderCache::default(),
            receipts: Arc::default(),
            receipts_in_flight: ReceiptsInFlight::default(),
            event_ids,
            unread_events: UnreadEvents::new(events),
            own,
        })
    }

    /// Returns this replica.
    pub(crate) fn own(&self) -> &Holder {
        &self.own
    }

    /// Returns the replica with this id, if it is known to live.
    pub(crate) fn live_peer(&self, id: &str) -> Option<Holder> {
        self.peers.find(id)
    }

    /// Returns the replica with this id, if it lives. One that has started a moment ago is looked up in the store.
    pub(crate) async fn find_peer(&self, id: &str) -> Option<Holder> {
        if let Some(peer) = self.live_peer(id) {
            return Some(peer);
        }
        self.read_peers().await.ok()?;
        self.live_peer(id)
    }

    /// Returns all other replicas that are known to live, and have an address.
    pub(crate) fn live_peers(&self) -> Vec<Holder> {
        let mut all = self.peers.all();
        all.retain(|peer| !peer.address.is_empty());
        all
    }

    /// Returns a replica for a session that this one does not claim or create, another one each time.
    pub(crate) fn successor(&self) -> Option<Holder> {
        self.peers.next()
    }

    /// Reads from the store which replicas live. Requests in flight to others fail.
    pub(crate) async fn read_peers(&self) -> Result<Vec<LiveGateway>, StoreError> {
        let since = Instant::now();
        let live = self.registry.read().await?;
        self.set_live(&live, since);
        Ok(live)
    }

    /// Whether the lease of a replica has ended, or was replaced, that owes an answer or has given none.
    pub(crate) async fn has_lost_awaited_peer(&self) -> bool {
        for lease in self.peers.awaited_leases() {
            // An outage of the store is reported by the renewal of the lease.
            if self.registry.is_over(lease).await.unwrap_or_default() {
                return true;
            }
        }
        false
    }

    /// Sets the gateways whose leases were alive at `since`.
    fn set_live(&self, live: &[LiveGateway], since: Instant) {
        let others = live.iter().filter(|it| it.holder.id != self.own.id);
        let others: Vec<_> = others.map(PeerState::new).collect();
        self.contacts.retain(&others.iter().map(|it| it.holder.id).collect::<Vec<_>>());
        for gone in self.peers.update(others.into_iter(), since) {
            tracing::warn!(replica = %gone.id, "replica {} at {} is gone", gone.id, gone.address);
            self.holders.forget_holder(&gone);
        }
    }

    /// Waits until the receipts for answers have been sent and have come, at most until `until`.
    pub(crate) async fn receipts_settled(&self, until: Instant) {
        self.receipts_in_flight.all_sent(until).await;
        self.receipts.all_settled(until).await;
    }

    /// Checks the signature of a request that came to the internal listener.
    pub(crate) fn verify(
        &self,
        head: &http::request::Parts,
    ) -> Result<VerifiedRequest, SignatureError> {
        let verified = self.signer.verify(&self.own, head)?;
        match self.replay.accept(verified.sender, verified.number) {
            true => Ok(verified),
            false => Err(SignatureError::Replayed),
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("own", &self.own).finish_non_exhaustive()
    }
}

//! Registry of the gateways on a store.
//!
//! The rows are state of a session with a fixed id, which no client can reach: so every store can hold them. A row is
//! valid as long as the lease in it, which the store's clock judges.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use stayput_core::{
    Clock as _, ExpectedValue, Expiry, Holder, Lease, Owner, Record, SessionId, StateLimits,
    StateWrite, Store, StoreError, SystemClock,
};
use stayput_upstream::SealKey;

/// Id of the session whose state is the registry.
const REGISTRY: &str = "00000000-0000-7000-8000-000000000001";

/// Issuer of the owners of sessions that belong to the gateways themselves.
const ISSUER: &str = "stayput.internal";

/// Prefix of the keys of rows. The id of the holder follows.
const ROW: &str = "gateway:";

/// Key of the text that was sealed by the key of the cluster.
const SEAL: &str = "seal";

/// Key of the secret that seals the ids of events. It is sealed by the key of the cluster.
const EVENT_SECRET: &str = "events";

/// Content of that text.
const SEALED: &[u8] = b"stayput";

/// Whether sessions of this owner belong to the gateways themselves, and are hidden from people.
pub(crate) fn is_internal(owner: &Owner) -> bool {
    owner.issuer().is_some_and(|issuer| issuer == ISSUER)
}

/// Owner of a session that belongs to the gateways themselves.
pub(crate) fn internal_owner(subject: &str) -> Option<Owner> {
    Owner::verified(ISSUER, subject).ok()
}

/// Row of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Fingerprints of its cluster keys. Empty for a gateway without `cluster`.
    pub(crate) keys: Vec<String>,
    /// Its servers, each with a hash of how it is reached.
    #[serde(default)]
    pub(crate) servers: BTreeMap<String, String>,
    /// Id of the volume of its private folders, if a folder for all gateways is configured.
    #[serde(default)]
    pub(crate) folders: Option<String>,
    /// Epoch of its first lease, which orders the starts of gateways. It may have got later leases since.
    pub(crate) started: u64,
    /// Whether its sessions move to other gateways. It takes no new ones.
    #[serde(default)]
    pub(crate) draining: bool,
}

/// Row as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredRow {
    holder: Holder,
    lease: Lease,
    #[serde(flatten)]
    row: Row,
}

/// Gateway whose lease is alive.
#[derive(Clone, Debug)]
pub(crate) struct LiveGateway {
    pub(crate) holder: Holder,
    pub(crate) lease: Lease,
    pub(crate) row: Row,
}

/// Reason why this gateway must not use the store together with those that use it already.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    #[error(
        "another gateway uses this database{}, and they would take the sessions from each other: stop it, choose \
         another database, or make them one cluster with `cluster` in the configuration of each", .0
    )]
    NotClustered(String),
    #[error(
        "the cluster on this database{} has another key: write the same `cluster.key` into the configuration of every \
         gateway; to change it, give each one both keys first", .0
    )]
    OtherKey(String),
    #[error(
        "the sessions in this database were sealed with another key: write the `seal` of the other gateways into this \
         configuration; to change it, give each one both keys first"
    )]
    OtherSeal,
    #[error(transparent)]
    Seal(#[from] stayput_upstream::SealError),
    #[error("the store cannot be used: {0}")]
    Store(#[from] StoreError),
}

/// Registry of the gateways on a store.
pub(crate) struct Registry {
    store: Arc<dyn Store>,
}

impl Registry {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Writes the row of a gateway.
    pub(crate) async fn write(
        &self,
        holder: &Holder,
        lease: Lease,
        row: &Row,
    ) -> Result<(), StoreError> {
        let stored = StoredRow { holder: holder.clone(), lease, row: row.clone() };
        // All fields are text, so serialization does not fail.
        let bytes = serde_json::to_vec(&stored).unwrap_or_default();
        let key = format!("{ROW}{}", holder.id);
        let known = self.store.load_state(id(), &key).await?;
        if known.is_some_and(|known| known.bytes == bytes) {
            return Ok(());
        }
        self.put(&key, &bytes, ExpectedValue::Any).await
    }

    /// Removes the row of a gateway.
    pub(crate) async fn remove(&self, holder: &Holder) -> Result<(), StoreError> {
        let key = format!("{ROW}{}", holder.id);
        self.store.remove_state(id(), &key, ExpectedValue::Any, None).await
    }

    async fn put(
        &self,
        key: &str,
        bytes: &[u8],
        expected: ExpectedValue,
    ) -> Result<(), StoreError> {
        let write = StateWrite { key, bytes, expected, limits: StateLimits::default() };
        match self.store.put_state(id(), write, None).await {
            // The session does not exist yet, or the store has forgotten it.
            Err(StoreError::Missing) => {
                self.create().await?;
                self.store.put_state(id(), write, None).await.map(drop)
            }
            put => put.map(drop),
        }
    }

    async fn create(&self) -> Result<(), StoreError> {
        let owner = internal_owner("registry").ok_or(StoreError::Missing)?;
        let expiry = Expiry { idle: None, absolute: None };
        let record = Record { id: id(), ..Record::new(owner, expiry, SystemClock.now()) };
        match self.store.insert(&record, None).await {
            Ok(_) | Err(StoreError::Taken { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads the rows of all gateways that live, and removes those of dead ones.
    pub(crate) async fn read(&self) -> Result<Vec<LiveGateway>, StoreError> {
        let mut live = Vec::new();
        for key in self.store.list_state_keys(id()).await? {
            if !key.key.starts_with(ROW) {
                continue;
            }
            let Some(value) = self.store.load_state(id(), &key.key).await? else { continue };
            // A newer version may write other rows.
            let Ok(stored) = serde_json::from_slice::<StoredRow>(&value.bytes) else { continue };
            let StoredRow { holder, lease, row } = stored;
            if self.store.lease_holder(lease).await?.is_some() {
                live.push(LiveGateway { holder, lease, row });
            } else {
                // If the row was written anew meanwhile, it stays.
                let expected = ExpectedValue::At(value.revision);
                let _ = self.store.remove_state(id(), &key.key, expected, None).await;
            }
        }
        Ok(live)
    }

    /// Whether a lease has ended.
    pub(crate) async fn is_over(&self, lease: Lease) -> Result<bool, StoreError> {
        Ok(self.store.lease_holder(lease).await?.is_none())
    }

    /// Checks whether a gateway that starts may run beside those that are there. Of two that start at the same time, the
    /// one whose first lease is later is refused.
    ///
    /// # Errors
    /// [`RegistryError`] says what to change.
    pub(crate) async fn check(&self, holder: &Holder, row: &Row) -> Result<(), RegistryError> {
        let others = self.read().await?.into_iter();
        let others = others.filter(|it| it.holder.id != holder.id && it.row.started < row.started);
        let others: Vec<_> = others.collect();
        match others.iter().find_map(|other| conflict(row, other)) {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    /// Checks that the first of `keys` is the key of this store, or makes it that. A store whose key is one of the
    /// others gets the first one.
    ///
    /// # Errors
    /// [`RegistryError::OtherSeal`] if none of the keys is it.
    pub(crate) async fn check_seal(&self, key: &SealKey) -> Result<(), RegistryError> {
        match self.sealed(key, SEAL, SEALED).await? == SEALED {
            true => Ok(()),
            false => Err(RegistryError::OtherSeal),
        }
    }

    /// Returns the secret that seals the ids of events in this cluster. The first gateway proposes it.
    ///
    /// # Errors
    /// [`RegistryError::OtherSeal`] if it was sealed by another key.
    pub(crate) async fn event_secret(
        &self,
        key: &SealKey,
        proposed: &[u8; 32],
    ) -> Result<[u8; 32], RegistryError> {
        let secret = self.sealed(key, EVENT_SECRET, proposed).await?;
        secret.try_into().map_err(|_| RegistryError::OtherSeal)
    }

    /// Returns a text that the key of the cluster has sealed, or seals `first` if there is none. A text that an older key
    /// has sealed is sealed anew.
    async fn sealed(
        &self,
        key: &SealKey,
        name: &str,
        first: &[u8],
    ) -> Result<Vec<u8>, RegistryError> {
        for _ in 0..4 {
            let known = self.store.load_state(id(), name).await?;
            let (plain, expected) = match &known {
                None => (first.to_vec(), ExpectedValue::Absent),
                Some(known) => {
                    let sealed = String::from_utf8_lossy(&known.bytes);
                    let opened = key.open(name, &sealed).map_err(|_| RegistryError::OtherSeal)?;
                    if !key.is_outdated(name, &sealed) {
                        return Ok(opened);
                    }
                    (opened, ExpectedValue::At(known.revision))
                }
            };
            let sealed = key.seal(name, &plain)?;
            match self.put(name, sealed.as_bytes(), expected).await {
                // Another gateway was faster; its text counts.
                Err(StoreError::Stale) => {}
                put => return Ok(put.map(|()| plain)?),
            }
        }
        Err(StoreError::Stale.into())
    }
}

/// Returns the reason why a gateway with this row cannot run beside another one.
fn conflict(own: &Row, other: &LiveGateway) -> Option<RegistryError> {
    let place = match &*other.holder.address {
        "" => String::new(),
        address => format!(" (at {address})"),
    };
    if own.keys.is_empty() || other.row.keys.is_empty() {
        return Some(RegistryError::NotClustered(place));
    }
    let shares = own.keys.iter().any(|key| other.row.keys.contains(key));
    (!shares).then_some(RegistryError::OtherKey(place))
}

/// Returns what two gateways of a cluster have configured differently, in sentences for the operator.
pub(crate) fn differences(own: &Row, other: &LiveGateway) -> Vec<String> {
    let (address, row) = (&other.holder.address, &other.row);
    let names: BTreeSet<_> = own.servers.keys().chain(row.servers.keys()).collect();
    let differ = |name: &&&String| own.servers.get(**name) != row.servers.get(**name);
    let differing: Vec<_> = names.iter().filter(differ).map(|name| format!("`{name}`")).collect();
    let mut all = Vec::new();
    if !differing.is_empty() {
        all.push(format!(
            "the gateway at {address} is configured with other servers than this one ({}): a session that moves between \
             them can lose its state; give all gateways of a cluster the same `mcpServers`",
            differing.join(", ")
        ));
    }
    if (own.folders.is_some() || row.folders.is_some()) && own.folders != row.folders {
        all.push(format!(
            "the gateway at {address} does not see the private folders of this one: sessions that use them lose their \
             state when they move between the two; mount one volume for all gateways, and set `folders` of each to its path"
        ));
    }
    all
}

/// Id of the session whose state is the registry.
fn id() -> SessionId {
    REGISTRY
        .parse()
        .unwrap_or_else(|_| SessionId::generate(stayput_core::Timestamp::from_millis(0)))
}

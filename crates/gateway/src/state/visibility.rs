//! Visibility of servers: a server that a client may not use does not exist for it.
//!
//! All lookups of servers go through `AppState`. A client that does not see all servers gets a copy of it that holds
//! only the visible servers and shares everything else. So paths, lists, calls and errors need no checks of their own.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use stayput_core::Owner;
use stayput_sync::RwLock;

use crate::{
    auth::{Claims, Principal},
    config::ClaimFilter,
    state::{Aggregate, AppState},
};

/// Number of filtered states that are cached before all of them are dropped.
const MAX_CACHED_VIEWS: usize = 256;

/// Filtered states by the visibility of the restricted servers, in the order of their names.
type CachedSnapshots = HashMap<Box<[bool]>, Arc<AppState>>;

/// Restrictions of the servers, and the filtered states.
#[derive(Default)]
pub(crate) struct Visibility {
    /// Restricted servers.
    rules: Arc<BTreeMap<String, ClaimFilter>>,
    /// `None` in a filtered state, which otherwise would hold a reference cycle.
    known: Option<RwLock<CachedSnapshots>>,
}

impl Visibility {
    pub(crate) fn new(servers: impl Iterator<Item = (String, ClaimFilter)>) -> Self {
        let rules: BTreeMap<_, _> = servers.filter(|(_, whom)| !whom.is_unrestricted()).collect();
        Self { rules: rules.into(), known: Some(RwLock::default()) }
    }

    /// Whether a client sees a server. The local owner, who runs the gateway, sees all.
    pub(crate) fn show(&self, server: &str, owner: &Owner, claims: &Claims) -> bool {
        let admits = |whom: &ClaimFilter| whom.allows(|name, value| claims.has(name, value));
        *owner == Owner::local() || self.filter(server).is_none_or(admits)
    }

    /// Returns the restriction of a server, if it has one.
    pub(crate) fn filter(&self, server: &str) -> Option<&ClaimFilter> {
        self.rules.get(server)
    }
}

impl AppState {
    /// Whether a request of this principal is routed to the server: it is visible to the principal, or it was removed
    /// for all clients, and the answer says so.
    pub(crate) fn leads_to(&self, server: &str, principal: &Principal) -> bool {
        match self.servers.contains_key(server) {
            true => self.visibility.show(server, &principal.owner, &principal.claims),
            false => self.removed.contains(server),
        }
    }

    /// Returns the filtered state for this principal, or `None` if it sees everything.
    pub(crate) fn seen_by(&self, principal: &Principal) -> Option<Arc<Self>> {
        let (rules, known) = (&self.visibility.rules, self.visibility.known.as_ref()?);
        // The local owner, who runs the gateway, sees all servers.
        if rules.is_empty() || principal.owner == Owner::local() {
            return None;
        }
        let claims = &principal.claims;
        let admits = |whom: &ClaimFilter| whom.allows(|name, value| claims.has(name, value));
        let seen: Box<[bool]> = rules.values().map(admits).collect();
        if let Some(known) = known.read().get(&seen) {
            return Some(known.clone());
        }
        let mut known = known.write();
        if known.len() >= MAX_CACHED_VIEWS {
            known.clear();
        }
        let app = known.entry(seen).or_insert_with_key(|seen| self.with_only(seen).into());
        Some(app.clone())
    }

    /// Returns a copy of this state with the unrestricted servers and those marked in `seen`.
    fn with_only(&self, seen: &[bool]) -> Self {
        let hidden = self.visibility.rules.keys().zip(seen).filter(|(_, seen)| !**seen);
        let hidden: Vec<&String> = hidden.map(|(name, _)| name).collect();
        let mut servers = self.servers.clone();
        servers.retain(|name, _| !hidden.contains(&name));
        let aggregate = Arc::new(Aggregate::new(servers.keys().map(String::as_str)));
        let visibility = Visibility { rules: self.visibility.rules.clone(), known: None };
        Self { servers, aggregate, visibility: visibility.into(), ..self.clone() }
    }
}

impl fmt::Debug for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Visibility").field(&self.rules).finish()
    }
}

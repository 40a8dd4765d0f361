//! Who sees which servers: a server that is not for somebody is not there for them.
//!
//! Everything that looks for a server looks into the house. So whoever does not see all of them is in a house of
//! its own that has only those it sees, and shares all else: paths, lists, calls and errors need no rules.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use stayput_core::Owner;

use crate::{
    auth::{Claims, Principal},
    config::ClaimFilter,
    state::{AppState, aggregate::Aggregate},
};

/// How many views are kept before those that nobody uses are forgotten.
const KEPT: usize = 256;

/// Houses by which of the servers that are not for everybody can be seen, in the order of their names.
type Known = HashMap<Box<[bool]>, Arc<AppState>>;

/// For whom which server is, and the houses of those who do not see all.
#[derive(Default)]
pub(crate) struct Visibility {
    /// The servers that are not for everybody.
    rules: Arc<BTreeMap<String, ClaimFilter>>,
    /// A house of those who do not see all has none, or the two would hold each other.
    known: Option<RwLock<Known>>,
}

impl Visibility {
    pub(crate) fn new(servers: impl Iterator<Item = (String, ClaimFilter)>) -> Self {
        let rules: BTreeMap<_, _> = servers.filter(|(_, whom)| !whom.is_unrestricted()).collect();
        Self { rules: rules.into(), known: Some(RwLock::default()) }
    }

    /// Whether somebody sees a server. Who runs the gateway has all of it.
    pub(crate) fn show(&self, server: &str, owner: &Owner, claims: &Claims) -> bool {
        let admits = |whom: &ClaimFilter| whom.allows(|name, value| claims.has(name, value));
        *owner == Owner::local() || self.of(server).is_none_or(admits)
    }

    /// Whom a server is for, if that is not everybody.
    pub(crate) fn of(&self, server: &str) -> Option<&ClaimFilter> {
        self.rules.get(server)
    }
}

impl AppState {
    /// Whether a request of somebody for this server would get to it: it is there for them, or it was removed for
    /// everybody and whoever used it is told so.
    pub(crate) fn leads_to(&self, server: &str, principal: &Principal) -> bool {
        match self.servers.contains_key(server) {
            true => self.views.show(server, &principal.owner, &principal.claims),
            false => self.removed.contains(server),
        }
    }

    /// The house as somebody sees it; none if that is this one.
    pub(crate) fn seen_by(&self, principal: &Principal) -> Option<Arc<Self>> {
        let (rules, known) = (&self.views.rules, self.views.known.as_ref()?);
        // Who runs the gateway has all of it.
        if rules.is_empty() || principal.owner == Owner::local() {
            return None;
        }
        let claims = &principal.claims;
        let admits = |whom: &ClaimFilter| whom.allows(|name, value| claims.has(name, value));
        let seen: Box<[bool]> = rules.values().map(admits).collect();
        if let Some(known) = known.read().unwrap_or_else(PoisonError::into_inner).get(&seen) {
            return Some(known.clone());
        }
        let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEPT {
            // Who called over the oldest transport finds its house by a weak hand.
            known.retain(|_, it| Arc::strong_count(it) > 1 || Arc::weak_count(it) > 0);
        }
        let app = known.entry(seen).or_insert_with_key(|seen| self.with_only(seen).into());
        Some(app.clone())
    }

    /// The same house, and of the servers that are not for everybody those that are marked.
    fn with_only(&self, seen: &[bool]) -> Self {
        let hidden = self.views.rules.keys().zip(seen).filter(|(_, seen)| !**seen);
        let hidden: Vec<&String> = hidden.map(|(name, _)| name).collect();
        let mut servers = self.servers.clone();
        servers.retain(|name, _| !hidden.contains(&name));
        let aggregate = Arc::new(Aggregate::new(servers.keys().map(String::as_str)));
        let views = Visibility { rules: self.views.rules.clone(), known: None };
        Self { servers, aggregate, views: views.into(), ..self.clone() }
    }
}

impl fmt::Debug for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Visibility").field(&self.rules).finish()
    }
}

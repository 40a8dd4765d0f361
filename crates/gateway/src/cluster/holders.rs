//! Cache of the holders of sessions.

use std::collections::HashMap;

use stayput_core::{Holder, SessionId};
use stayput_sync::RwLock;

use crate::reply::SessionName;

/// Largest number of entries. Beyond it the cache begins anew, and the store is asked again.
const MAX_ENTRIES: usize = 1 << 17;

/// Holders of sessions, as the store or a replica has named them. An entry may be out of date: the holder then says that
/// it does not hold the session, and the store is asked.
#[derive(Default)]
pub(crate) struct HolderCache(RwLock<HashMap<SessionName, Holder>>);

impl HolderCache {
    /// Returns the holder of a session, if it is cached.
    pub(crate) fn get(&self, name: &SessionName) -> Option<Holder> {
        self.0.read().get(name).cloned()
    }

    /// Adds the holder of a session.
    pub(crate) fn insert(&self, name: SessionName, holder: &Holder) {
        let mut all = self.0.write();
        if all.len() >= MAX_ENTRIES {
            all.clear();
        }
        all.insert(name, holder.clone());
    }

    /// Whether a replica is cached as the holder of the session with this id.
    pub(crate) fn has(&self, session: SessionId) -> bool {
        let all = self.0.read();
        all.contains_key(&SessionName::Id(session))
    }

    /// Removes the entry of one session, if `holder` is still cached as its holder.
    pub(crate) fn forget(&self, name: &SessionName, holder: &Holder) {
        let mut all = self.0.write();
        if all.get(name).is_some_and(|known| known == holder) {
            all.remove(name);
        }
    }

    /// Removes all entries of a holder.
    pub(crate) fn forget_holder(&self, holder: &Holder) {
        let mut all = self.0.write();
        all.retain(|_, known| known.id != holder.id);
    }
}

#[cfg(test)]
mod tests {
    use stayput_core::Timestamp;

    use super::*;

    /// A session that moved says nothing about the other sessions of its former holder.
    #[test]
    fn one_session_is_forgotten_and_the_others_of_its_holder_stay() {
        let (cache, one) = (HolderCache::default(), Holder::at("http://127.0.0.1:1").unwrap());
        let two = Holder::at("http://127.0.0.1:2").unwrap();
        let id = || SessionId::generate(Timestamp::from_millis(1));
        let names = [SessionName::Id(id()), SessionName::Id(id())];
        names.iter().for_each(|name| cache.insert(*name, &one));
        cache.forget(&names[0], &two);
        assert_eq!(cache.get(&names[0]).as_ref(), Some(&one), "another holder is cached");
        cache.forget(&names[0], &one);
        assert_eq!((cache.get(&names[0]), cache.get(&names[1])), (None, Some(one.clone())));
        cache.forget_holder(&one);
        assert_eq!(cache.get(&names[1]), None);
    }
}

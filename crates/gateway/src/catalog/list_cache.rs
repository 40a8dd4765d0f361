//! Cache of lists as clients see them. Editing a list of several megabytes takes many milliseconds, so it is done once
//! per page of a server's profile and view, not once per request.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::MutexGuard,
};

use bytes::Bytes;
use stayput_sync::Mutex;

/// Largest number of bytes of a cache, keys and sources included. The entry that was added first goes first.
const MAX_BYTES: usize = 32 << 20;

/// Cached values that were made from pages. An entry holds its pages, so that no other page can have their addresses.
pub(crate) struct ListCache<V>(Mutex<Entries<V>>);

struct Entries<V> {
    values: HashMap<Key, Entry<V>>,
    order: VecDeque<Key>,
    bytes: usize,
}

/// Addresses and lengths of the source pages, and the view that they are presented in.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    pages: Vec<(usize, usize)>,
    view: String,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    _pages: Vec<Bytes>,
}

impl<V> Default for ListCache<V> {
    fn default() -> Self {
        let (values, order) = (HashMap::new(), VecDeque::new());
        Self(Mutex::new(Entries { values, order, bytes: 0 }))
    }
}

impl<V: Clone> ListCache<V> {
    fn lock(&self) -> MutexGuard<'_, Entries<V>> {
        self.0.lock()
    }

    /// Returns the value of these pages in this view. If it is not known, `make` returns it with its size.
    pub(crate) fn get(
        &self,
        pages: &[Bytes],
        view: String,
        make: impl FnOnce() -> (V, usize),
    ) -> V {
        let address = |page: &Bytes| (page.as_ptr().addr(), page.len());
        let key = Key { pages: pages.iter().map(address).collect(), view };
        if let Some(entry) = self.lock().values.get(&key) {
            return entry.value.clone();
        }
        // Made without the lock, so that other lists can be read meanwhile.
        let (value, size) = make();
        let held: usize = pages.iter().map(Bytes::len).sum();
        let bytes = size + held + key.view.len();
        if bytes <= MAX_BYTES {
            let entry = Entry { value: value.clone(), bytes, _pages: pages.to_vec() };
            self.lock().insert(key, entry);
        }
        value
    }
}

impl<V> Entries<V> {
    fn insert(&mut self, key: Key, entry: Entry<V>) {
        self.bytes += entry.bytes;
        if let Some(before) = self.values.insert(key.clone(), entry) {
            // Another request has made it meanwhile.
            self.bytes -= before.bytes;
            return;
        }
        self.order.push_back(key);
        while self.bytes > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else { return };
            self.bytes -= self.values.remove(&oldest).map_or(0, |entry| entry.bytes);
        }
    }
}

impl<V> fmt::Debug for ListCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.0.lock();
        write!(f, "ListCache({} lists, {} bytes)", entries.values.len(), entries.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(cache: &ListCache<String>, page: &Bytes, view: &str, size: usize) -> bool {
        let mut is_made = false;
        cache.get(std::slice::from_ref(page), view.to_owned(), || {
            is_made = true;
            (view.to_owned(), size)
        });
        is_made
    }

    #[test]
    fn value_is_made_once_per_page_and_view() {
        let (cache, page) = (ListCache::default(), Bytes::from("a page".to_owned()));
        assert!(get(&cache, &page, "a", 1) && get(&cache, &page, "b", 1));
        assert!(!get(&cache, &page, "a", 1) && !get(&cache, &page, "b", 1));
        let equal = Bytes::from("a page".to_owned());
        assert!(get(&cache, &equal, "a", 1), "a page of another profile");
    }

    #[test]
    fn oldest_values_are_dropped() {
        let (cache, page) = (ListCache::default(), Bytes::from_static(b"a page"));
        for number in 0..10 {
            get(&cache, &page, &number.to_string(), MAX_BYTES / 4);
        }
        assert!(cache.lock().bytes <= MAX_BYTES);
        assert!(!get(&cache, &page, "9", 1) && get(&cache, &page, "0", 1));
        assert!(get(&cache, &page, "large", MAX_BYTES) && get(&cache, &page, "large", MAX_BYTES));
        let entries = cache.lock();
        assert_eq!(entries.values.len(), entries.order.len());
    }
}

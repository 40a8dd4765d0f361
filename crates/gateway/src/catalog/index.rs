//! Index of the entries that a server lists.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
};

use bytes::Bytes;
use stayput_sync::Mutex;
use stayput_upstream::Profile;

use crate::catalog::{
    list::{List, TEMPLATES},
    uri_template::Template,
};

/// Largest number of indexed entries per list. Entries beyond it count as not listed.
const MAX_INDEXED_ENTRIES: usize = 100_000;

/// Largest number of indexes that are cached.
const PROFILES: usize = 256;

/// Index of one list of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    called: HashSet<Box<str>>,
    templates: Vec<Template>,
}

impl Index {
    pub(crate) fn new<'a>(list: &List, pages: impl IntoIterator<Item = &'a Bytes>) -> Self {
        let mut index = Self::default();
        index.add(list, pages);
        index
    }

    /// Adds pages of the same list.
    pub(crate) fn add<'a>(&mut self, list: &List, pages: impl IntoIterator<Item = &'a Bytes>) {
        for page in pages {
            for called in list.entries(page).filter_map(|entry| list.called(entry)) {
                if self.called.len() >= MAX_INDEXED_ENTRIES {
                    return;
                }
                if *list == TEMPLATES {
                    self.templates.push(Template::new(&called));
                }
                self.called.insert(called.into());
            }
        }
    }

    /// Whether the server lists exactly this name or URI.
    pub(crate) fn has(&self, called: &str) -> bool {
        self.called.contains(called)
    }

    /// Returns every entry, in no particular order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.called.iter().map(|called| &**called)
    }

    /// Returns the specificity of the best template that matches a URI.
    pub(crate) fn closest(&self, uri: &str) -> Option<usize> {
        let matching = self.templates.iter().filter(|template| template.matches(uri));
        matching.map(Template::literal).max()
    }
}

/// List of a server as one client knows it: from the profile, and from later answers of the server.
#[derive(Clone, Debug)]
pub(crate) struct ClientIndex {
    pub(crate) known: Arc<Index>,
    pub(crate) seen: Option<Arc<Index>>,
}

impl ClientIndex {
    fn each(&self) -> impl Iterator<Item = &Index> {
        std::iter::once(&*self.known).chain(self.seen.as_deref())
    }

    /// Whether either index has the entry, see [`Index::has`].
    pub(crate) fn has(&self, called: &str) -> bool {
        self.each().any(|index| index.has(called))
    }

    /// Returns the entries of both indexes, see [`Index::all`].
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.each().flat_map(Index::all)
    }

    /// Returns the best match of both indexes, see [`Index::closest`].
    pub(crate) fn closest(&self, uri: &str) -> Option<usize> {
        self.each().filter_map(|index| index.closest(uri)).max()
    }
}

/// Cache of the indexes of profiles.
#[derive(Debug, Default)]
pub(crate) struct Indexes(Mutex<HashMap<(usize, &'static str), CachedIndex>>);

/// Cached index with a weak reference to its profile. The reference keeps the memory of the profile reserved, so that
/// no other profile gets the same address, which is the key.
#[derive(Debug)]
struct CachedIndex {
    profile: Weak<Profile>,
    index: Arc<Index>,
}

impl Indexes {
    /// Returns the index of a list of a profile.
    pub(crate) fn get(&self, profile: &Arc<Profile>, list: &'static List) -> Arc<Index> {
        let key = (Arc::as_ptr(profile).addr(), list.method);
        if let Some(known) = self.0.lock().get(&key) {
            return known.index.clone();
        }
        let index = Arc::new(Index::new(list, profile.pages(list.method)));
        let mut all = self.0.lock();
        if all.len() >= PROFILES {
            all.retain(|_, known| known.profile.strong_count() > 0);
        }
        if all.len() >= PROFILES {
            all.clear();
        }
        all.insert(key, CachedIndex { profile: Arc::downgrade(profile), index: index.clone() });
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::list::{RESOURCES, TOOLS};

    #[test]
    fn listed_entries_are_found() {
        let profile = Profile::from_text(
            r#"{"way":"legacy","version":"2025-11-25","greeting":{},"lists":[
            ["tools/list",[{"tools":[{"name":"a"}]},{"tools":[{"name":"b"}]}]],
            ["resources/templates/list",[{"resourceTemplates":[{"uriTemplate":"x:\/\/{id}"},{"uriTemplate":"{+all}"}]}]]]}"#,
        );
        let (profile, indexes) = (Arc::new(profile.unwrap()), Indexes::default());
        let tools = indexes.get(&profile, &TOOLS);
        assert!(tools.has("a") && tools.has("b") && !tools.has("c"));
        assert_eq!(tools.closest("x://1"), None);
        let templates = indexes.get(&profile, &TEMPLATES);
        assert!(templates.has("x://{id}"));
        assert_eq!((templates.closest("x://1"), templates.closest("y")), (Some(4), Some(0)));
        assert_eq!(indexes.get(&profile, &RESOURCES).all().count(), 0);
        assert!(Arc::ptr_eq(&tools, &indexes.get(&profile, &TOOLS)));
    }
}

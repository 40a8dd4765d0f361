//! What a server has, to be looked up.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bytes::Bytes;
use stayput_upstream::Profile;

use crate::catalog::{
    list::{List, TEMPLATES},
    uri_template::Template,
};

/// The most entries of one list that are looked up. What comes behind them is found as if it was not
/// listed.
const LIMIT: usize = 100_000;

/// The most profiles whose lists are kept to be looked up.
const PROFILES: usize = 256;

/// What is in one list of one server.
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

    /// More pages of the same list.
    pub(crate) fn add<'a>(&mut self, list: &List, pages: impl IntoIterator<Item = &'a Bytes>) {
        for page in pages {
            for called in list.entries(page).filter_map(|entry| list.called(entry)) {
                if self.called.len() >= LIMIT {
                    return;
                }
                if *list == TEMPLATES {
                    self.templates.push(Template::new(&called));
                }
                self.called.insert(called.into());
            }
        }
    }

    /// Whether the server lists exactly this.
    pub(crate) fn has(&self, called: &str) -> bool {
        self.called.contains(called)
    }

    /// Everything that the server lists, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.called.iter().map(|called| &**called)
    }

    /// How close the closest template of the server is that a URI can be made from.
    pub(crate) fn closest(&self, uri: &str) -> Option<usize> {
        let matching = self.templates.iter().filter(|template| template.matches(uri));
        matching.map(Template::literal).max()
    }
}

/// A list of a server as one client knows it: out of the profile, and as the server told it since.
#[derive(Clone, Debug)]
pub(crate) struct Indexed {
    pub(crate) known: Arc<Index>,
    pub(crate) seen: Option<Arc<Index>>,
}

impl Indexed {
    fn each(&self) -> impl Iterator<Item = &Index> {
        std::iter::once(&*self.known).chain(self.seen.as_deref())
    }

    /// See [`Index::has`].
    pub(crate) fn has(&self, called: &str) -> bool {
        self.each().any(|index| index.has(called))
    }

    /// See [`Index::all`].
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.each().flat_map(Index::all)
    }

    /// See [`Index::closest`].
    pub(crate) fn closest(&self, uri: &str) -> Option<usize> {
        self.each().filter_map(|index| index.closest(uri)).max()
    }
}

/// The lists of profiles, looked through once.
#[derive(Debug, Default)]
pub(crate) struct Indexes(Mutex<HashMap<(usize, &'static str), Known>>);

/// Kept with its profile, so that no other one comes to its place in memory.
#[derive(Debug)]
struct Known {
    profile: Weak<Profile>,
    index: Arc<Index>,
}

impl Indexes {
    /// A list of a profile.
    pub(crate) fn of(&self, profile: &Arc<Profile>, list: &'static List) -> Arc<Index> {
        let key = (Arc::as_ptr(profile).addr(), list.method);
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.index.clone();
        }
        let index = Arc::new(Index::new(list, profile.pages(list.method)));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PROFILES {
            all.retain(|_, known| known.profile.strong_count() > 0);
        }
        if all.len() >= PROFILES {
            all.clear();
        }
        all.insert(key, Known { profile: Arc::downgrade(profile), index: index.clone() });
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::list::{RESOURCES, TOOLS};

    #[test]
    fn what_is_listed_is_found() {
        let profile = Profile::from_text(
            r#"{"way":"legacy","version":"2025-11-25","greeting":{},"lists":[
            ["tools/list",[{"tools":[{"name":"a"}]},{"tools":[{"name":"b"}]}]],
            ["resources/templates/list",[{"resourceTemplates":[{"uriTemplate":"x:\/\/{id}"},{"uriTemplate":"{+all}"}]}]]]}"#,
        );
        let (profile, indexes) = (Arc::new(profile.unwrap()), Indexes::default());
        let tools = indexes.of(&profile, &TOOLS);
        assert!(tools.has("a") && tools.has("b") && !tools.has("c"));
        assert_eq!(tools.closest("x://1"), None);
        let templates = indexes.of(&profile, &TEMPLATES);
        assert!(templates.has("x://{id}"));
        assert_eq!((templates.closest("x://1"), templates.closest("y")), (Some(4), Some(0)));
        assert_eq!(indexes.of(&profile, &RESOURCES).all().count(), 0);
        assert!(Arc::ptr_eq(&tools, &indexes.of(&profile, &TOOLS)));
    }
}

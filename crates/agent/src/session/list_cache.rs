//! Cache of the lists that a session fetched from its servers.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use stayput_core::Generation;
use stayput_sync::Mutex;
use stayput_upstream::{Identity, PooledLink};

/// Kind of list that a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Resources.
    Resources,
    /// Resource templates.
    Templates,
}

impl ListKind {
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// Member of the result that holds the items.
    pub(crate) fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }
}

/// Pages of a list, as the server wrote them.
pub(crate) type Pages = Arc<[Bytes]>;

/// Server, branch and kind of a list.
pub(crate) type ListKey = (Arc<str>, u64, ListKind);

/// State of a link when a list was fetched. A cached list is valid only for an equal version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListVersion {
    configuration: Identity,
    generation: Generation,
    /// Number of `list_changed` notifications so far.
    changes: u64,
}

impl ListVersion {
    pub(crate) fn new(link: &PooledLink) -> Self {
        let configuration = link.key().configuration();
        Self { configuration, generation: link.generation(), changes: link.lists_changed() }
    }
}

/// Lists that a session fetched from its servers.
#[derive(Debug, Default)]
pub(crate) struct ListCache(Mutex<CachedLists>);

#[derive(Debug, Default)]
struct CachedLists {
    lists: HashMap<ListKey, (ListVersion, Pages)>,
    /// Set by [`ListCache::clear`]: from then on the server's profile is not used either.
    cleared: bool,
}

impl ListCache {
    pub(crate) fn clear(&self) {
        let mut cached = self.0.lock();
        cached.lists.clear();
        cached.cleared = true;
    }

    pub(crate) fn get(&self, key: &ListKey, version: ListVersion) -> Option<Pages> {
        let cached = self.0.lock();
        let (cached_version, pages) = cached.lists.get(key)?;
        (*cached_version == version).then(|| pages.clone())
    }

    pub(crate) fn insert(&self, key: ListKey, version: ListVersion, pages: &Pages) {
        self.0.lock().lists.insert(key, (version, pages.clone()));
    }

    pub(crate) fn is_cleared(&self) -> bool {
        self.0.lock().cleared
    }
}

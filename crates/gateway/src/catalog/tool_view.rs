//! Presentation of a server's tools to a client: with a session argument, and together with the session tools.

use std::{collections::HashMap, fmt, sync::Arc};

use stayput_core::Owner;
use stayput_identify::{SessionArgument, tool_names, tools::SessionTool};
use stayput_sync::RwLock;
use stayput_upstream::{Isolation, Profile, Server};
use stayput_wire::Era;

/// Presentation of a server's tools, determined once per profile.
#[derive(Debug)]
pub(crate) struct ToolView {
    /// Whether the server keeps state per session, which it does not if all clients share one link.
    pub(crate) kept: bool,
    /// Session argument of the tools.
    pub(crate) argument: SessionArgument,
    /// Whether a tool of the server has the name of a session tool.
    pub(crate) prefixed: bool,
}

impl ToolView {
    fn new(server: &Server, profile: &Profile) -> Self {
        let pages = profile.pages("tools/list");
        Self {
            kept: profile.isolation(server) != Isolation::Shared,
            argument: SessionArgument::for_pages(pages),
            prefixed: SessionTool::clash(tool_names(pages)),
        }
    }
}

/// Cache of tool views, per server and era of the client: the lists of a server may differ between the eras.
#[derive(Default)]
pub(crate) struct ToolViews {
    legacy: RwLock<HashMap<String, ServerViews>>,
    modern: RwLock<HashMap<String, ServerViews>>,
}

/// Number of owners per server at which the cache is cleared.
const MAX_CACHED_OWNERS: usize = 4096;

/// Tool views of one server.
#[derive(Default)]
struct ServerViews {
    /// View that each owner was shown last, because profiles may differ between owners.
    owners: HashMap<Owner, CachedView>,
    /// View that was determined last, which most owners share.
    last: Option<CachedView>,
}

/// Tool view with its profile.
#[derive(Clone)]
struct CachedView {
    profile: Arc<Profile>,
    tool_view: Arc<ToolView>,
}

impl CachedView {
    fn for_profile(&self, profile: &Arc<Profile>) -> Option<Arc<ToolView>> {
        Arc::ptr_eq(&self.profile, profile).then(|| self.tool_view.clone())
    }
}

impl ToolViews {
    fn cache_of(&self, server: &Server) -> &RwLock<HashMap<String, ServerViews>> {
        match server.preferred_era() {
            Era::Legacy => &self.legacy,
            Era::Modern => &self.modern,
        }
    }

    /// Returns the view that this owner was shown last. Every list request updates it, so a call after a list finds
    /// the view of that list. The profile is not hashed for this.
    pub(crate) fn last(&self, server: &Server, owner: &Owner) -> Option<Arc<ToolView>> {
        let all = self.cache_of(server).read();
        all.get(server.name())?.owners.get(owner).map(|seen| seen.tool_view.clone())
    }

    pub(crate) fn get(
        &self,
        server: &Server,
        owner: &Owner,
        profile: &Arc<Profile>,
    ) -> Arc<ToolView> {
        let (own, shared) = {
            let all = self.cache_of(server).read();
            let of = all.get(server.name());
            let own = of.and_then(|of| of.owners.get(owner)?.for_profile(profile));
            (own, of.and_then(|of| of.last.as_ref()?.for_profile(profile)))
        };
        if let Some(own) = own {
            return own;
        }
        let view = shared.unwrap_or_else(|| Arc::new(ToolView::new(server, profile)));
        let seen = CachedView { profile: profile.clone(), tool_view: view.clone() };
        let mut all = self.cache_of(server).write();
        let of = all.entry(server.name().to_owned()).or_default();
        if of.owners.len() >= MAX_CACHED_OWNERS {
            of.owners.clear();
        }
        of.owners.insert(owner.clone(), seen.clone());
        of.last = Some(seen);
        view
    }
}

impl fmt::Debug for ToolViews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |all: &RwLock<HashMap<_, _>>| all.read().len();
        write!(f, "ToolViews({})", count(&self.legacy) + count(&self.modern))
    }
}

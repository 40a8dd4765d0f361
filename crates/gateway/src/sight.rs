//! How the tools of a server are shown to a client: with an argument for the session, and beside our own.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use stayput_core::{Clock as _, SessionId, SystemClock};
use stayput_upstream::{Isolation, Place, Profile, Server};

use crate::{
    handles::{self, Argument},
    house::House,
    identify::Claim,
    session_tools,
};

/// What is decided once for each profile of a server.
#[derive(Debug)]
pub(crate) struct Sight {
    /// Whether state is kept there: not where everybody shares one link.
    pub(crate) kept: bool,
    /// How its tools take a handle.
    pub(crate) argument: Argument,
    /// Whether a tool of its own is called like one of ours.
    pub(crate) prefixed: bool,
}

impl Sight {
    fn of(server: &Server, profile: &Profile) -> Self {
        let pages = profile.pages("tools/list");
        Self {
            kept: server.isolation(profile.way().era()) != Isolation::Shared,
            argument: Argument::of(pages),
            prefixed: session_tools::clash(pages),
        }
    }
}

/// What was decided so far, for the profile that was seen last of each server.
#[derive(Default)]
pub(crate) struct Sights(RwLock<HashMap<String, Seen>>);

/// What was decided, and for which profile.
type Seen = (Arc<Profile>, Arc<Sight>);

impl Sights {
    fn get(&self, server: &Server, profile: &Arc<Profile>) -> Arc<Sight> {
        let known =
            self.0.read().unwrap_or_else(PoisonError::into_inner).get(server.name()).cloned();
        if let Some((seen, sight)) = known
            && Arc::ptr_eq(&seen, profile)
        {
            return sight;
        }
        let sight = Arc::new(Sight::of(server, profile));
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(server.name().to_owned(), (profile.clone(), sight.clone()));
        sight
    }
}

impl fmt::Debug for Sights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sights({})", self.0.read().unwrap_or_else(PoisonError::into_inner).len())
    }
}

impl House {
    /// How the tools of the server that a request is for are shown; `None` if it cannot be asked.
    pub(crate) async fn sight(&self, claim: &Claim<'_>) -> Option<Arc<Sight>> {
        let session = claim.connection.map(|connection| connection.session);
        // A server is asked in somebody's name; which session's does not matter.
        let session = session.unwrap_or_else(|| SessionId::generate(SystemClock.now()));
        let place = Place::new(claim.owner.clone(), session);
        let profile = self.links.profile(claim.server, &place).await.ok()?;
        Some(self.identify.sights.get(claim.server, &profile))
    }

    /// Whether the server that a request is for keeps state for a session.
    pub(crate) async fn keeps(&self, claim: &Claim<'_>) -> bool {
        match claim.server.options().isolation {
            Some(isolation) => isolation != Isolation::Shared,
            None => self.sight(claim).await.is_none_or(|sight| sight.kept),
        }
    }

    /// A result of `tools/list` as this client sees it; `None` if it stays as it is. Our own tools stand
    /// on the first page, which every client reads.
    pub(crate) async fn shown(&self, claim: &Claim<'_>, page: &str) -> Option<String> {
        let (server, front) = (claim.server.name(), claim.front());
        let takes = self.identify.takes_argument(server, front);
        let shows = self.identify.shows_tools(server, front);
        if !takes && !shows {
            return None;
        }
        let sight = self.sight(claim).await.filter(|sight| sight.kept)?;
        let with_argument = takes.then(|| handles::listed(page, &sight.argument).into_owned());
        let page = with_argument.as_deref().unwrap_or(page);
        let cursor = claim.message.params().and_then(|params| params.find(&["cursor"]));
        let list = handles::list(page).filter(|_| shows && cursor.is_none_or(|it| it.is_null()));
        let Some(list) = list else { return with_argument };
        let own = session_tools::listed(&self.identify, claim, sight.prefixed);
        Some(handles::appended(page, list, &own))
    }
}

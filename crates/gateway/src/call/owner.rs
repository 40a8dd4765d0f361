//! Owner of a call: a session, or none.

use std::sync::Arc;

use stayput_core::{ActiveSession, Generation, Handle, Origin, Session};
use stayput_upstream::{CallError, Hello, Isolation, PooledLink, Profile, Server};
use stayput_wire::Era;

use super::{session_link::SessionLink, sessionless::SessionlessLink};
use crate::{
    call::modern::state,
    catalog::list,
    identify::{EphemeralSession, RequestContext},
    reply::{ReplyText, RequestRef, loss},
    state::AppState,
};

/// Owner of a call, which decides its limit, its link and its loss reports.
pub(super) enum CallOwner {
    /// Session that does not become idle during the call.
    Session {
        link: SessionLink,
        /// Whether the state that the client remembers still exists.
        origin: Origin,
        /// New handle that the answer returns to the client.
        given: Option<Handle>,
        /// Ends a session that exists for this call only. It comes after `link`, which uses the session, so that it is
        /// dropped later.
        _ephemeral: Option<EphemeralSession>,
    },
    /// Call without a session. Resources that were made for it end with it.
    Sessionless(Box<SessionlessLink>),
}

impl CallOwner {
    /// Returns the owner of a modern request that depends on no session: a list, or a request to a shared server.
    pub(super) fn of_none(
        context: &RequestContext<'_>,
        server: &Server,
        profile: &Profile,
    ) -> Option<Self> {
        let isolation = server.isolation(profile.way().era());
        let method = context.asked().method;
        let is_common = method == "server/discover" || list::is_list(method);
        (is_common || isolation == Isolation::Shared).then(|| {
            Self::Sessionless(Box::new(SessionlessLink::new(context, server.clone(), profile)))
        })
    }

    /// Returns a session as the owner, with the fields of [`SessionChoice`](crate::identify::SessionChoice).
    pub(super) fn of_session(
        context: &RequestContext<'_>,
        server: &Server,
        session: ActiveSession,
        (origin, given, fleeting): (Origin, Option<Handle>, bool),
    ) -> Self {
        let _ephemeral = fleeting.then(|| EphemeralSession::of(context.app, session.session()));
        // A lost state is reported before a call is sent that depends on it, though the store may not show that yet.
        let is_reported = loss::depends_on_state(context.asked().method);
        let origin = match origin {
            Origin::Lost(_) if is_reported => Origin::Existing,
            origin => origin,
        };
        let (app, server) = (context.app.clone(), server.clone());
        let link = SessionLink { app, server, session, era: context.era };
        Self::Session { link, origin, given, _ephemeral }
    }

    /// Returns an existing session as the owner of a request of the gateway itself.
    pub(super) fn of_link(link: SessionLink) -> Self {
        Self::Session { link, origin: Origin::Existing, given: None, _ephemeral: None }
    }

    pub(super) fn app(&self) -> &Arc<AppState> {
        match self {
            Self::Session { link, .. } => &link.app,
            Self::Sessionless(link) => &link.app,
        }
    }

    pub(super) fn server(&self) -> &Server {
        match self {
            Self::Session { link, .. } => &link.server,
            Self::Sessionless(link) => &link.server,
        }
    }

    /// Returns the session, if there is one.
    pub(super) fn session(&self) -> Option<&Session> {
        match self {
            Self::Session { link, .. } => Some(&link.session),
            Self::Sessionless(_) => None,
        }
    }

    /// Returns the error message if the owner is at its limit of concurrent calls.
    pub(super) fn over_limit(&self) -> Option<String> {
        match self {
            Self::Session { link, .. } => link.over_limit(),
            Self::Sessionless(link) => link.over_limit(),
        }
    }

    /// Returns the link if it exists.
    pub(super) fn found(&self) -> Option<PooledLink> {
        match self {
            Self::Session { link, .. } => link.found(),
            Self::Sessionless(link) => link.found(),
        }
    }

    /// Opens the link. `hello` is the client information that the server gets.
    pub(super) async fn open(&self, hello: Hello) -> Result<PooledLink, String> {
        match self {
            Self::Session { link, .. } => link.open(hello).await,
            // No client is named to the server, because several share the link.
            Self::Sessionless(link) => link.open().await,
        }
    }

    /// Records which state of a shared link the session depends on from now on.
    pub(super) async fn depend(
        &self,
        link: &PooledLink,
        asked: RequestRef<'_>,
    ) -> Result<(), String> {
        match self {
            Self::Session { link: of, .. } => of.depend(link, asked).await,
            Self::Sessionless(_) => Ok(()),
        }
    }

    /// Returns the report of a loss that the owner does not know of. It is the answer to the next request that depends
    /// on state.
    pub(super) fn pending_loss(
        &self,
        link: &PooledLink,
        asked: RequestRef<'_>,
    ) -> Option<ReplyText> {
        match self {
            Self::Session { link: of, .. } => of.pending_loss(link, asked),
            Self::Sessionless(of) => of.pending_loss(link, asked),
        }
    }

    /// Returns whether a call that certainly did not run is sent again after a loss. Modern clients get the error.
    pub(super) fn restarts(&self) -> bool {
        match self {
            Self::Session { link, .. } => link.era == Era::Legacy && link.restarts(),
            Self::Sessionless(_) => false,
        }
    }

    /// Returns the generation of a loss that the session has not acknowledged.
    pub(super) fn unacknowledged_loss(&self) -> Option<Generation> {
        let session = self.session()?;
        session.unacknowledged_loss_on(self.server().name())
    }

    /// Returns the answer to a call that failed.
    pub(super) fn failed(
        &self,
        link: &PooledLink,
        asked: RequestRef<'_>,
        error: &CallError,
    ) -> ReplyText {
        match self {
            Self::Session { link: of, .. } => of.failed(link, asked, error),
            Self::Sessionless(of) => of.failed(link, asked, error),
        }
    }

    /// Returns the state behind the link as JSON for a modern client, if the server keeps state.
    pub(super) fn state(&self, link: &PooledLink, method: &str) -> Option<String> {
        match self {
            Self::Session { link: of, origin, .. } => {
                Some(state::told(of.session.session(), *origin, link.generation()))
            }
            Self::Sessionless(of) => {
                let keeps = of.keeps_state(link) && loss::depends_on_state(method);
                keeps.then(|| state::shared(link.generation()))
            }
        }
    }
}

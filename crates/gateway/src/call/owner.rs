//! Owner of a call at one server: a session, or none. It decides the limit of calls and the link.

use std::sync::Arc;

use stayput_core::{ActiveSession, Generation, Handle, Origin, Session};
use stayput_upstream::{
    ClientInfo, Isolation, LinkOpenError, LinkOpenOptions, LinkOwner, PooledLink, Profile, Server,
};
use stayput_wire::Era;
use tracing::Span;

use crate::{
    auth::call_limit::{CallPermit, LimitKey},
    call::{era, modern::answer, sessionless::Sessionless},
    catalog::list,
    identify::{ChosenSession, RequestContext},
    observe::{
        recent::NameSource, session_extension::SessionExtension, session_stats::SessionStats,
    },
    reply::{RequestRef, loss},
    state::{
        AppState,
        shared_generations::{EntryGeneration, SharedUser},
        shared_servers::ServerUse,
    },
};

/// Owner of a call at one server.
pub(super) struct CallOwner {
    pub(super) app: Arc<AppState>,
    pub(super) server: Server,
    /// Protocol era of the client, which determines the form of errors.
    pub(super) era: Era,
    pub(super) kind: OwnerKind,
}

pub(super) enum OwnerKind {
    Session(ChosenSession),
    /// Call without a session: a modern one on the shared link or on a temporary one, or one on a link that this replica
    /// has claimed for all its users.
    Sessionless(Box<SessionlessCall>),
}

/// Call without a session. Resources that were made for it end with it.
pub(super) struct SessionlessCall {
    pub(super) place: Sessionless,
    /// Permit of the call. `None` if the limit is reached.
    permit: Option<CallPermit>,
    /// Protocol era of the server. A modern server keeps no state between calls.
    pub(super) era: Era,
    /// Use of the claimed process, if the link leads to one.
    pub(super) server_use: Option<Arc<ServerUse>>,
}

impl SessionlessCall {
    /// Returns the user that is told of a loss.
    pub(super) fn user(&self) -> SharedUser {
        match &self.server_use {
            Some(used) => used.user.clone(),
            None => SharedUser::Owner(self.place.link_owner().owner.clone()),
        }
    }

    /// Returns the generation of a link as it is counted for users. That of a claimed process goes on across links, and
    /// across replicas.
    pub(super) fn entry_generation(
        &self,
        link: &PooledLink,
        generation: Generation,
    ) -> EntryGeneration {
        match self.server_use {
            Some(_) => (0, generation),
            None => (link.entry_id(), generation),
        }
    }

    /// Returns whether the server keeps state behind this link.
    pub(super) fn keeps_state(&self, link: &PooledLink) -> bool {
        self.era == Era::Legacy && link.keeps_state()
    }
}

impl CallOwner {
    /// Returns the owner of a modern request that depends on no session: a list, or a request to a shared server.
    pub(super) fn sessionless(
        context: &RequestContext<'_>,
        server: &Server,
        profile: &Profile,
    ) -> Option<Self> {
        let (app, era) = (context.app.clone(), profile.era());
        let (isolation, method) = (profile.isolation(server), context.request_ref().method);
        let is_common = method == "server/discover" || list::is_list(method);
        if !is_common && isolation != Isolation::Shared {
            return None;
        }
        let place = Sessionless::new(&app, context.owner, isolation == Isolation::PerSession);
        let listens = era::listens(method);
        let (owner, server_name) = (context.owner.clone(), server.shared_name());
        let at = LimitKey { owner, connection: None, server: server_name, listens };
        let permit = app.call_limiter.enter(at, app.rules.limits.calls);
        let call = SessionlessCall { place, permit, era, server_use: None };
        let kind = OwnerKind::Sessionless(Box::new(call));
        Some(Self { app, server: server.clone(), era: context.era, kind })
    }

    /// Returns the owner of a request to a process that this replica has claimed for all its users.
    pub(super) async fn for_claimed_server(
        context: &RequestContext<'_>,
        server: &Server,
        claim: &Arc<ActiveSession>,
    ) -> Self {
        let app = context.app.clone();
        let connection = context.connection.map(|it| &**it);
        let used = app.begin_server_use(claim, context.owner, connection).await;
        let at = LimitKey {
            owner: context.owner.clone(),
            connection: connection.map(|it| it.name().hash(context.owner)),
            server: server.shared_name(),
            listens: era::listens(context.request_ref().method),
        };
        let permit = app.call_limiter.enter(at, app.rules.limits.calls);
        let place = Sessionless::new(&app, context.owner, false);
        let server_use = Some(used.into());
        // The link says whether there is state.
        let call = SessionlessCall { place, permit, era: Era::Legacy, server_use };
        let kind = OwnerKind::Sessionless(Box::new(call));
        Self { app, server: server.clone(), era: context.era, kind }
    }

    /// Returns a session as the owner.
    pub(super) fn for_session(
        context: &RequestContext<'_>,
        server: &Server,
        mut chosen: ChosenSession,
    ) -> Self {
        // A lost state is reported before a call is sent that depends on it, though the store may not show that yet.
        let is_reported = loss::depends_on_state(context.request_ref().method);
        if is_reported && matches!(chosen.origin, Origin::Lost(_)) {
            chosen.origin = Origin::Existing;
        }
        let kind = OwnerKind::Session(chosen);
        Self { app: context.app.clone(), server: server.clone(), era: context.era, kind }
    }

    /// Returns an existing session as the owner of a request of the gateway itself.
    pub(super) fn for_gateway(
        app: &Arc<AppState>,
        server: &Server,
        session: ActiveSession,
    ) -> Self {
        let chosen = ChosenSession::new(session, Origin::Existing, NameSource::Connection);
        let kind = OwnerKind::Session(chosen);
        Self { app: app.clone(), server: server.clone(), era: Era::Legacy, kind }
    }

    /// Returns the session, if there is one.
    pub(super) fn session(&self) -> Option<&Session> {
        match &self.kind {
            OwnerKind::Session(chosen) => Some(&chosen.session),
            OwnerKind::Sessionless(_) => None,
        }
    }

    /// Returns the part of the request that named the session.
    pub(super) fn name_source(&self) -> Option<NameSource> {
        match &self.kind {
            OwnerKind::Session(chosen) => Some(chosen.name_source),
            OwnerKind::Sessionless(_) => None,
        }
    }

    /// Returns the span `session` of the call. Calls without a session have none.
    pub(super) fn span(&self) -> Span {
        match &self.kind {
            OwnerKind::Session(chosen) => {
                tracing::debug_span!("session", id = %chosen.session.id())
            }
            OwnerKind::Sessionless(_) => Span::none(),
        }
    }

    /// Returns the new handle that the answer returns to the client.
    pub(super) fn new_handle(&self) -> Option<&Handle> {
        match &self.kind {
            OwnerKind::Session(chosen) => chosen.new_handle.as_ref(),
            OwnerKind::Sessionless(_) => None,
        }
    }

    fn link_owner(&self) -> LinkOwner {
        match &self.kind {
            OwnerKind::Session(ChosenSession { session, .. }) => {
                LinkOwner::new(session.session().owner().clone(), session.id())
            }
            OwnerKind::Sessionless(call) => call.place.link_owner().clone(),
        }
    }

    /// Returns the error message if the owner is at its limit of concurrent calls.
    pub(super) fn limit_error(&self) -> Option<String> {
        let (limit, server) = (self.app.rules.limits.calls, self.server.name());
        let busy = match &self.kind {
            OwnerKind::Session(chosen) if chosen.session.users_at_start() > limit => {
                format!("this session has {limit} calls in flight")
            }
            OwnerKind::Sessionless(call) if call.permit.is_none() => {
                format!(
                    "{limit} of your calls to `{server}` are in flight that belong to no session"
                )
            }
            _ => return None,
        };
        Some(format!(
            "Nothing was run: {busy}, which is `limits.calls_per_session`. Wait for one of them to end, and try again \
             in 1 s."
        ))
    }

    /// Returns the link if it exists. Tries the link of the session's previous call first, which nearly always saves
    /// the lookup.
    pub(super) fn find_link(&self) -> Option<PooledLink> {
        let links = &self.app.links;
        let session = match &self.kind {
            OwnerKind::Session(chosen) => chosen.session.session(),
            OwnerKind::Sessionless(call) => {
                return links.find(&self.server, call.place.link_owner());
            }
        };
        let extension = SessionExtension::get(session);
        if let Some(link) = extension.and_then(|extension| extension.link(&self.server)) {
            return Some(link);
        }
        let link = links.find_of(&self.server, session.owner(), session.id())?;
        if let Some(extension) = extension {
            extension.set_link(&link);
        }
        Some(link)
    }

    /// Opens the link. `client_info` is the client information that the server gets. No client is named on a link that
    /// several share.
    pub(super) async fn open_link(&self, client_info: ClientInfo) -> Result<PooledLink, String> {
        let (link_owner, server) = (self.link_owner(), self.app.present(&self.server)?);
        let link = match &self.kind {
            OwnerKind::Session(chosen) => {
                let (engine, session) = (&self.app.engine, chosen.session.session());
                engine.open_link((session, &link_owner), &server, client_info).await
            }
            OwnerKind::Sessionless(sessionless) if let Some(used) = &sessionless.server_use => {
                let claim = (used.claim.session(), &link_owner);
                self.app.engine.open_claimed_link(claim, &server, client_info).await
            }
            OwnerKind::Sessionless(sessionless) => {
                let mut options = LinkOpenOptions::default();
                if sessionless.place.is_alone() {
                    options.client_info = client_info;
                }
                self.app.links.open(&server, &link_owner, &options).await
            }
        };
        link.map_err(|error| self.describe_open_error(&error))
    }

    /// Returns the reason why there is no link, in words for a client. Details are recorded for the operator.
    fn describe_open_error(&self, error: &LinkOpenError) -> String {
        let text = error.to_string();
        let message = LinkOpenError::without_output(&text);
        self.note_failure(message.to_owned(), &text[message.len()..]);
        self.app.describe_open_error(error)
    }

    pub(super) fn note_failure(&self, message: String, wrote: &str) {
        if let Some(stats) = self.session().and_then(SessionStats::get) {
            stats.failed(self.server.shared_name(), message, wrote);
        }
    }

    /// Records which state of a shared link the session depends on from now on. If it depended on an earlier state,
    /// that one is lost and has to be reported.
    pub(super) async fn note_dependence(
        &self,
        link: &PooledLink,
        request: RequestRef<'_>,
    ) -> Result<(), String> {
        if !loss::depends_on_state(request.method) {
            return Ok(());
        }
        let chosen = match &self.kind {
            OwnerKind::Session(chosen) => chosen,
            OwnerKind::Sessionless(call) => {
                return match &call.server_use {
                    Some(used) if link.keeps_state() => {
                        let generation = link.generation();
                        self.app.note_server_use(used, self.server.name(), generation).await
                    }
                    _ => Ok(()),
                };
            }
        };
        let engine = &self.app.engine;
        let noted =
            engine.note_shared_state(chosen.session.session(), self.server.name(), link).await;
        noted.map(drop).map_err(|error| error.to_string())
    }

    /// Returns whether a call that certainly did not run is sent again after a loss. Modern clients get the error, and so
    /// do clients without a session, whose answers could not tell of the loss.
    pub(super) fn restarts(&self) -> bool {
        self.session().is_some()
            && self.era == Era::Legacy
            && self.app.restarting.contains(self.server.name())
    }

    /// Returns the state behind the link as JSON for a modern client, if the server keeps state.
    pub(super) fn state(&self, link: &PooledLink, method: &str) -> Option<String> {
        match &self.kind {
            OwnerKind::Session(ChosenSession { session, origin, .. }) => {
                Some(answer::state_json(session.session(), *origin, link.generation()))
            }
            OwnerKind::Sessionless(call) => {
                let keeps = call.keeps_state(link) && loss::depends_on_state(method);
                keeps.then(|| answer::shared_state_json(link.generation()))
            }
        }
    }
}

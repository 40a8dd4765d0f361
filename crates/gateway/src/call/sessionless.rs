//! Links and requests that belong to no session.

use std::sync::{Arc, OnceLock};

use stayput_core::{Owner, SessionId, Timestamp};
use stayput_upstream::{
    Asking, CallError, Delivery, Isolation, LinkOpenError, LinkOwner, LossReason, PooledLink,
    Profile, Server,
};
use stayput_wire::Era;

use crate::{
    auth::call_limit::{At, CallPermit},
    call::era,
    identify::RequestContext,
    reply::{
        self, AfterWrite, ReplyText, RequestRef,
        loss::{self, LossReport},
    },
    state::AppState,
};

/// Link owner for a request without a session. If it is `alone`, everything that was made for it ends when it is
/// dropped.
pub(crate) struct Sessionless {
    app: Arc<AppState>,
    place: LinkOwner,
    alone: bool,
}

impl Sessionless {
    /// Creates an owner. With `alone` it gets its own session id, because a folder or link may be made for it that is
    /// not shared.
    pub(crate) fn new(app: &Arc<AppState>, owner: &Owner, alone: bool) -> Self {
        /// Session id for all owners for which nothing is made.
        static COMMON: OnceLock<SessionId> = OnceLock::new();
        let fresh = || SessionId::generate(Timestamp::from_millis(0));
        let session = if alone { fresh() } else { *COMMON.get_or_init(fresh) };
        Self { app: app.clone(), place: LinkOwner::new(owner.clone(), session), alone }
    }

    pub(crate) fn place(&self) -> &LinkOwner {
        &self.place
    }
}

impl AppState {
    /// Returns the profile of a server. If it is unknown, the server is asked without a session, and resources made
    /// for that, such as a folder, are removed afterwards.
    pub(crate) async fn profile(
        self: &Arc<Self>,
        server: &Server,
        owner: &Owner,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let common = Sessionless::new(self, owner, false);
        if let Some(known) = self.links.known_profile(server, common.place()).await {
            return Ok(known);
        }
        let sessionless = Sessionless::new(self, owner, server.depends_on_session());
        self.links.profile(server, sessionless.place()).await
    }

    /// Returns the profile with an up-to-date list. If the server announced a change on any link, it is asked there.
    /// If the list was not available before, the server is asked on a temporary link.
    pub(crate) async fn current(
        self: &Arc<Self>,
        server: &Server,
        owner: &Owner,
        list: &str,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        let profile = self.profile(server, owner).await?;
        let common = Sessionless::new(self, owner, false);
        let current = self.links.current_profile(server, common.place()).await;
        let profile = current.unwrap_or(profile);
        let isolation = server.isolation(profile.way().era());
        // On a shared link the list need not be learned here: the request itself goes to the server.
        if !profile.lacks(list) || isolation == Isolation::Shared {
            return Ok(profile);
        }
        let sessionless = Sessionless::new(self, owner, isolation == Isolation::PerSession);
        let link = self.links.open(server, sessionless.place(), &Asking::default()).await?;
        Ok(self.links.relearn(server, sessionless.place(), &link).await.unwrap_or(profile))
    }
}

impl Drop for Sessionless {
    fn drop(&mut self) {
        if !self.alone {
            return;
        }
        let (app, session) = (self.app.clone(), self.place.session);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { app.links.end(session).await });
        }
    }
}

/// Modern call without a session at one server: on the shared link, or on a temporary one.
pub(super) struct SessionlessLink {
    pub(super) app: Arc<AppState>,
    pub(super) server: Server,
    owner: Sessionless,
    /// Permit of the call. `None` if the limit is reached.
    permit: Option<CallPermit>,
    /// Protocol era of the server. A modern server keeps no state between calls.
    era: Era,
}

impl SessionlessLink {
    pub(super) fn new(context: &RequestContext<'_>, server: Server, profile: &Profile) -> Self {
        let (app, era) = (context.app.clone(), profile.way().era());
        let owner =
            Sessionless::new(&app, context.owner, server.isolation(era) == Isolation::PerSession);
        let at = At {
            owner: context.owner.clone(),
            server: server.shared_name(),
            listens: era::listens(context.asked().method),
        };
        let permit = app.call_limiter.enter(at, app.rules.calls);
        Self { app, server, owner, permit, era }
    }

    /// Returns the error message for a call over the limit.
    pub(super) fn over_limit(&self) -> Option<String> {
        let (limit, server) = (self.app.rules.calls, self.server.name());
        self.permit.is_none().then(|| {
            format!(
                "Nothing was run: {limit} of your calls to `{server}` are in flight that belong to no session, \
                 which is `limits.calls_per_session`. Wait for one of them to end, and try again in 1 s."
            )
        })
    }

    /// Returns the shared link, if it exists.
    pub(super) fn found(&self) -> Option<PooledLink> {
        self.app.links.find(&self.server, self.owner.place())
    }

    /// Opens the shared link, or a temporary one for a server with one link per session.
    pub(super) async fn open(&self) -> Result<PooledLink, String> {
        let server = self.app.present(&self.server)?;
        let link = self.app.links.open(&server, self.owner.place(), &Asking::default()).await;
        link.map_err(|error| self.app.describe_open_error(&error))
    }

    /// Returns whether the server keeps state behind this link.
    pub(super) fn keeps_state(&self, link: &PooledLink) -> bool {
        self.era == Era::Legacy && link.keeps_state()
    }

    /// Returns the loss report if the state behind a shared link was lost since the last call of this owner. It is not
    /// known which of several clients without a session gets the report, so every answer carries its generation.
    pub(super) fn pending_loss(
        &self,
        link: &PooledLink,
        asked: RequestRef<'_>,
    ) -> Option<ReplyText> {
        if !self.keeps_state(link) || !loss::depends_on_state(asked.method) {
            return None;
        }
        let (owner, generation) = (&self.owner.place().owner, link.generation());
        let entry = (link.slot(), generation);
        self.app.generations.lost(owner, self.server.name(), entry).then(|| {
            let reason = loss::reason(link.loss().map(|loss| loss.reason()));
            let (server, delivery) = (self.server.name(), Delivery::NotSent);
            let report = LossReport { server, session: None, generation, reason, delivery };
            let (app, owner, server) = (self.app.clone(), owner.clone(), server.to_owned());
            let note: AfterWrite = Box::new(move || app.generations.tell(&owner, &server, entry));
            ReplyText::new(report.answer(asked, Era::Modern)).then(Some(note))
        })
    }

    /// Returns the answer to a call that failed. Shared state is lost for all its users, so the report is recorded for
    /// the owner and not for a session.
    pub(super) fn failed(
        &self,
        link: &PooledLink,
        asked: RequestRef<'_>,
        error: &CallError,
    ) -> ReplyText {
        let loss = error.loss().filter(|loss| {
            let depends = loss::depends_on_state(asked.method) && self.era == Era::Legacy;
            depends && loss.reason() != LossReason::Released
        });
        let Some(loss) = loss else {
            return ReplyText::new(reply::failure(asked, Era::Modern, &error.brief()));
        };
        let generation = link.generation().next();
        let (server, delivery) = (self.server.name(), error.delivery());
        let reason = loss::reason(Some(loss.reason()));
        let report = LossReport { server, session: None, generation, reason, delivery };
        self.app.generations.tell(&self.owner.place().owner, server, (link.slot(), generation));
        ReplyText::new(report.answer(asked, Era::Modern))
    }
}

//! Placeholder owner of links and requests that belong to no session.

use std::sync::{Arc, OnceLock};

use stayput_core::{Owner, SessionId, Timestamp};
use stayput_upstream::{
    ClientInfo, Isolation, LinkOpenError, LinkOpenOptions, LinkOwner, Profile, Server,
};
use stayput_wire::Era;

use crate::state::AppState;

/// Link owner for a request without a session. If it is `alone`, everything that was made for it ends when it is
/// dropped.
pub(crate) struct Sessionless {
    app: Arc<AppState>,
    link_owner: LinkOwner,
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
        Self { app: app.clone(), link_owner: LinkOwner::new(owner.clone(), session), alone }
    }

    pub(crate) fn link_owner(&self) -> &LinkOwner {
        &self.link_owner
    }

    /// Whether links of this owner serve no other request.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
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
        self.profile_for_opener(server, owner, None).await
    }

    /// Returns the profile as [`AppState::profile`]. If `opener` is expected to open a link soon, a process that was
    /// started for the profile waits for that link.
    async fn profile_for_opener(
        self: &Arc<Self>,
        server: &Server,
        owner: &Owner,
        opener: Option<ClientInfo>,
    ) -> Result<Arc<Profile>, Arc<LinkOpenError>> {
        self.adopt_profile(server, owner).await;
        let common = Sessionless::new(self, owner, false);
        if let Some(known) = self.links.known_profile(server, common.link_owner()).await {
            return Ok(known);
        }
        let sessionless = Sessionless::new(self, owner, server.depends_on_session());
        match opener {
            Some(client_info) => {
                self.links.profile_for_opener(server, sessionless.link_owner(), &client_info).await
            }
            None => self.links.profile(server, sessionless.link_owner()).await,
        }
    }

    /// Returns the server as a client of `era` uses it. A server that speaks the era of a modern client is used in
    /// that era, any other as by all clients. For `opener` see [`Links::profile_for_opener`].
    ///
    /// [`Links::profile_for_opener`]: stayput_upstream::Links::profile_for_opener
    pub(crate) async fn server_for<'s>(
        self: &Arc<Self>,
        server: &'s Server,
        owner: &Owner,
        (era, opener): (Era, Option<ClientInfo>),
    ) -> &'s Server {
        let own = server.for_client(era);
        if own.preferred_era() == server.preferred_era() {
            return server;
        }
        match self.profile_for_opener(own, owner, opener).await {
            Ok(profile) => profile.server(server),
            // The next question for its profile says why.
            Err(_) => own,
        }
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
        let current = self.links.current_profile(server, common.link_owner()).await;
        let profile = current.unwrap_or(profile);
        let isolation = profile.isolation(server);
        // On a shared link the list need not be learned here: the request itself goes to the server.
        if !profile.lacks(list) || isolation == Isolation::Shared {
            return Ok(profile);
        }
        let sessionless = Sessionless::new(self, owner, isolation == Isolation::PerSession);
        let link =
            self.links.open(server, sessionless.link_owner(), &LinkOpenOptions::default()).await?;
        Ok(self.links.relearn(server, sessionless.link_owner(), &link).await.unwrap_or(profile))
    }
}

impl Drop for Sessionless {
    fn drop(&mut self) {
        if !self.alone {
            return;
        }
        let (app, session) = (self.app.clone(), self.link_owner.session);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { app.links.end(session).await });
        }
    }
}

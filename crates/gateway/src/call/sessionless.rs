//! A place for what belongs to no session.

use std::sync::{Arc, OnceLock};

use stayput_core::{Owner, SessionId, Timestamp};
use stayput_upstream::{Asking, Isolation, OpenError, Place, Profile, Server};

use crate::state::AppState;

/// Stands where a session has to be named and none is meant. What was made for one that is `alone` ends
/// with it.
pub(crate) struct Sessionless {
    app: Arc<AppState>,
    place: Place,
    alone: bool,
}

impl Sessionless {
    /// `alone`: something may be made in its name, a folder or a link, that nobody else uses.
    pub(crate) fn new(app: &Arc<AppState>, owner: &Owner, alone: bool) -> Self {
        /// Where nothing is made in its name, one does for all.
        static COMMON: OnceLock<SessionId> = OnceLock::new();
        let fresh = || SessionId::generate(Timestamp::from_millis(0));
        let session = if alone { fresh() } else { *COMMON.get_or_init(fresh) };
        Self { app: app.clone(), place: Place::new(owner.clone(), session), alone }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }
}

impl AppState {
    /// What is known of a server. If nothing is, it is asked in nobody's name, and what is made for that, such
    /// as a folder, goes again.
    pub(crate) async fn profile(
        self: &Arc<Self>,
        server: &Server,
        owner: &Owner,
    ) -> Result<Arc<Profile>, Arc<OpenError>> {
        let common = Sessionless::new(self, owner, false);
        if let Some(known) = self.links.known_profile(server, common.place()).await {
            return Ok(known);
        }
        let nobody = Sessionless::new(self, owner, server.depends_on_session());
        self.links.profile(server, nobody.place()).await
    }

    /// The same, with a list as it is now: if the server said on any link that one changed, it is asked there. If it
    /// could not be had before, the server is asked on a link that is thrown away.
    pub(crate) async fn current(
        self: &Arc<Self>,
        server: &Server,
        owner: &Owner,
        list: &str,
    ) -> Result<Arc<Profile>, Arc<OpenError>> {
        let profile = self.profile(server, owner).await?;
        let common = Sessionless::new(self, owner, false);
        let current = self.links.current_profile(server, common.place()).await;
        let profile = current.unwrap_or(profile);
        let isolation = server.isolation(profile.way().era());
        // What all share is shown as it is, so it is simply asked.
        if !profile.lacks(list) || isolation == Isolation::Shared {
            return Ok(profile);
        }
        let nobody = Sessionless::new(self, owner, isolation == Isolation::PerSession);
        let link = self.links.open(server, nobody.place(), &Asking::default()).await?;
        Ok(self.links.relearn(server, nobody.place(), &link).await.unwrap_or(profile))
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

//! Opening and finding sessions of a hub, and its default session.

use std::{
    collections::BTreeMap,
    sync::{Arc, MutexGuard},
};

use stayput_core::{
    Agent, Key, OpenOptions, OpenedSession, Record, SessionId, SessionOpenError, StoreError,
};

use super::{
    Session, SessionInfo,
    guard::{HeldSession, SessionGuard, retry_while_held},
};
use crate::{
    DefaultSessionOptions, Error, Hub,
    hub::{DefaultSession, HubInner},
};

/// Number of records that [`Hub::sessions`] reads at once.
const SESSIONS_PER_PAGE: usize = 500;

/// Source of session names that all agents share.
const GLOBAL_NAME_SOURCE: &str = "global";

impl Hub {
    /// Finds the session of this name, or creates it. It continues when the last [`Session`] of it is dropped, until
    /// it is ended, expires, or the hub is closed.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub async fn session(&self, name: &str) -> Result<Session, Error> {
        let key = Key::named(name)?;
        let (owner, agent) = (self.inner.owner.clone(), self.agent.clone());
        self.open(&key, &OpenOptions::with_key(owner, agent, key.clone())).await
    }

    async fn open(&self, key: &Key, options: &OpenOptions) -> Result<Session, Error> {
        self.inner.check_open()?;
        let which = HeldSession::Key(&self.agent, key);
        let opening = retry_while_held(&self.inner, which, || self.inner.sessions.open(options));
        let OpenedSession { session, .. } = self.inner.thread.in_runtime(opening).await?;
        Ok(self.open_session(session.id()))
    }

    /// Finds the session of this name.
    ///
    /// # Errors
    /// [`Error::UnknownSession`] if there is none.
    pub async fn find(&self, name: &str) -> Result<Session, Error> {
        self.find_by_key(&self.agent, &Key::named(name)?).await
    }

    async fn find_by_key(&self, agent: &Agent, key: &Key) -> Result<Session, Error> {
        self.inner.check_open()?;
        let sessions = &self.inner.sessions;
        let which = HeldSession::Key(agent, key);
        let finding = retry_while_held(&self.inner, which, || {
            sessions.find_by_key(&self.inner.owner, agent, key)
        });
        match self.inner.thread.in_runtime(finding).await {
            Ok(session) => Ok(self.open_session(session.id())),
            Err(SessionOpenError::Ended(_)) => Err(Error::UnknownSession),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists the live sessions, in the order of their ids: of this agent, or of all agents if this is the hub itself.
    /// In a store these are also the sessions of other processes; of a gateway, only those that this hub uses.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn sessions(&self) -> Result<Vec<SessionInfo>, Error> {
        self.inner.check_open()?;
        let listing = async {
            let (mut all, mut after) = (Vec::new(), None);
            loop {
                let page =
                    self.inner.sessions.list(&self.inner.owner, after, SESSIONS_PER_PAGE).await?;
                after = page.last().map(|record| record.id);
                let is_last = page.len() < SESSIONS_PER_PAGE;
                let is_ours = |it: &&Record| self.agent == Agent::none() || it.agent == self.agent;
                let ours = page.iter().filter(is_ours);
                all.extend(ours.map(|it| SessionInfo::new(it, it.last_used)));
                if is_last {
                    return Ok(all);
                }
            }
        };
        self.inner.thread.in_runtime(listing).await
    }

    /// Creates a session under a name that every agent can find by [`Hub::find_global`].
    ///
    /// # Errors
    /// [`Error::NameTaken`] if there is one already.
    pub async fn global_session(&self, name: &str) -> Result<Session, Error> {
        self.inner.check_open()?;
        let key = Key::new(GLOBAL_NAME_SOURCE, name)?;
        let options = OpenOptions::with_key(self.inner.owner.clone(), Agent::none(), key);
        match self.inner.thread.in_runtime(self.inner.sessions.open_new(&options)).await {
            Ok(OpenedSession { session, .. }) => Ok(self.open_session(session.id())),
            Err(SessionOpenError::Store(StoreError::Taken { .. })) => {
                Err(Error::NameTaken { name: name.to_owned() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Finds the session that an agent created by [`Hub::global_session`].
    ///
    /// # Errors
    /// [`Error::UnknownSession`] if there is none.
    pub async fn find_global(&self, name: &str) -> Result<Session, Error> {
        self.find_by_key(&Agent::none(), &Key::new(GLOBAL_NAME_SOURCE, name)?).await
    }

    /// Returns a session without a name. It is opened by its first call, and ends when the last [`Session`] of it is
    /// dropped.
    #[must_use]
    pub fn ephemeral(&self) -> Session {
        Session::new(self, SessionGuard::ephemeral(self.inner.clone()))
    }

    /// Opens a default session for this agent: from now on it takes the calls that belong to no other session.
    /// Returns the existing one if there is one.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub async fn enable_default_session(
        &self,
        options: DefaultSessionOptions,
    ) -> Result<Session, Error> {
        let known = self.default_sessions().get(&self.agent).cloned();
        if let Some(known) = &known {
            let guard = known.guard(&self.inner);
            if self.inner.thread.in_runtime(guard.acquire()).await.is_ok() {
                return Ok(Session::new(self, guard));
            }
        }
        let id = SessionId::generate(self.inner.now());
        let key = Key::named(&format!("{}{id}", options.prefix))?;
        let (owner, agent) = (self.inner.owner.clone(), self.agent.clone());
        let open_options = OpenOptions::with_key(owner, agent, key.clone());
        let guard = self.open(&key, &open_options.expiry(options.expiry())).await?.guard;
        let created = DefaultSession { id: guard.id, generations: guard.generations.clone() };
        let (used, surplus) = {
            let mut all = self.default_sessions();
            let ended = known.map(|known| known.id);
            match all.get(&self.agent).filter(|it| Some(it.id) != ended) {
                // A concurrent call was faster.
                Some(other) => (other.clone(), Some(created)),
                None => {
                    all.insert(self.agent.clone(), created.clone());
                    (created, None)
                }
            }
        };
        if let Some(surplus) = surplus {
            surplus.guard(&self.inner).end().await?;
        }
        Ok(Session::new(self, used.guard(&self.inner)))
    }

    /// Ends the default session of this agent. From now on calls that belong to no session are errors.
    ///
    /// # Errors
    /// If it cannot be ended.
    pub async fn disable_default_session(&self) -> Result<(), Error> {
        let known = self.default_sessions().remove(&self.agent);
        match known {
            Some(known) => known.guard(&self.inner).end().await,
            None => Ok(()),
        }
    }

    pub(crate) fn default_guard(&self) -> Option<Arc<SessionGuard>> {
        let known = self.default_sessions().get(&self.agent).cloned();
        known.map(|known| known.guard(&self.inner))
    }

    fn default_sessions(&self) -> MutexGuard<'_, BTreeMap<Agent, DefaultSession>> {
        self.inner.resources.default_sessions.lock()
    }

    /// Wraps a session that is open in the store.
    pub(super) fn open_session(&self, id: SessionId) -> Session {
        Session::new(self, SessionGuard::of_open(self.inner.clone(), id))
    }
}

impl DefaultSession {
    fn guard(&self, hub: &Arc<HubInner>) -> Arc<SessionGuard> {
        SessionGuard::with_generations(hub.clone(), self.id, self.generations.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// §6: the test only changes the hub's process id, because `fork` needs unsafe code.
    #[tokio::test]
    async fn hub_of_another_process_refuses_everything() {
        let hub = Hub::builder().server("none", crate::Stdio::new("no-such-program")).build();
        let hub = hub.unwrap();
        let id = hub.session("a").await.unwrap().id();
        let mut inner = Arc::try_unwrap(hub.inner).ok().unwrap();
        inner.thread.pretend_forked();
        let hub = Hub { inner: Arc::new(inner), agent: hub.agent };
        let forked =
            |error: Error| assert_eq!((error.kind(), error.reason()), ("hub_forked", None));
        forked(hub.session("a").await.unwrap_err());
        forked(hub.find("a").await.unwrap_err());
        forked(
            hub.run(async { hub.call("none", "x", serde_json::json!({})).await })
                .await
                .unwrap_err(),
        );
        let unnamed = hub.ephemeral();
        forked(unnamed.call("none", "x", serde_json::json!({})).await.unwrap_err());
        forked(hub.tools("none").await.unwrap_err());
        forked(hub.wait_ready("none", Duration::from_secs(1)).await.unwrap_err());
        forked(hub.profile("none").await.unwrap_err());
        let session = hub.open_session(id);
        forked(session.info().await.unwrap_err());
        forked(session.restart("none").await.unwrap_err());
        forked(session.end().await.unwrap_err());
        forked(session.into_ticket().await.unwrap_err());
        assert_eq!(hub.close(Duration::from_secs(60)).await, crate::CloseReport::default());
        let found = hub.inner.sessions.find_by_id(&hub.inner.owner, id).await;
        assert!(found.is_ok(), "the session was not ended");
    }
}

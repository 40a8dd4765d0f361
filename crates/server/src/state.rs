//! The state of the session that a request belongs to.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use stayput_core::{EndReason, Handle, SessionId, StateError, StateKey, StoreError};

use crate::{
    Error,
    request::{RequestSession, scope},
};

/// The state of the session that a request belongs to: typed values by key, kept for as long as the session
/// lives, whichever process answers the next request.
///
/// It is a parameter of a tool, a prompt or an axum handler. Where a handler gets only the context of a
/// request, [`State::from_context`] takes it from there, and [`State::current`] from the task.
///
/// The session is found by the first of these calls, and not before. Each value is a row of its own in the store:
/// reading costs one read, changing one read and one write, and [`State::update`] never loses a change, however
/// many clients and processes change the same value.
#[derive(Clone)]
pub struct State(Arc<RequestSession>);

impl State {
    pub(crate) fn new(request_session: Arc<RequestSession>) -> Self {
        Self(request_session)
    }

    /// The state of the request that this task works on: inside the layer, and inside every tool that
    /// [`SessionTools::mount`](crate::SessionTools::mount) was given. A task of its own has none; give it a clone.
    #[must_use]
    pub fn current() -> Option<Self> {
        scope::current().map(Self)
    }

    /// Whether the request says which session it means. If it does not, the first use of this state asks its client to,
    /// or makes one, see [`MissingSession`](crate::MissingSession).
    #[must_use]
    pub fn is_identified(&self) -> bool {
        self.0.is_identified()
    }

    /// Reads the value under `key`.
    ///
    /// # Errors
    /// If there is no session, the value is no `T`, or the store does not answer.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Error> {
        let guard = self.0.session().await?;
        let id = guard.session().id();
        let found = self.registry().state(id).get(key).await?;
        if found.is_none() && !guard.just_loaded {
            // A session that is over has no values either.
            self.registry().check_live(id).await?;
        }
        Ok(found)
    }

    /// Writes the value under `key`, whatever was there.
    ///
    /// # Errors
    /// As [`State::get`], and if the value is too large.
    pub async fn set<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), Error> {
        let id = self.0.session().await?.session().id();
        self.explain_missing(id, self.registry().state(id).set(key, value).await).await
    }

    /// Changes the value under `key` in place, beginning with the default where there is none.
    ///
    /// `change` runs again on the newer value whenever somebody else wrote meanwhile, so it should do nothing
    /// but change its argument. What it returns in the round that counted is returned.
    ///
    /// # Errors
    /// As [`State::set`], and if others keep writing first.
    pub async fn update<T, R>(&self, key: &str, change: impl FnMut(&mut T) -> R) -> Result<R, Error>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        let id = self.0.session().await?.session().id();
        self.explain_missing(id, self.registry().state(id).update(key, change).await).await
    }

    /// Removes the value under `key`. Removing what is not there is fine.
    ///
    /// # Errors
    /// As [`State::get`].
    pub async fn remove(&self, key: &str) -> Result<(), Error> {
        let id = self.0.session().await?.session().id();
        self.explain_missing(id, self.registry().state(id).remove(key).await).await
    }

    /// The keys in order, with the size of each value.
    ///
    /// # Errors
    /// As [`State::get`].
    pub async fn keys(&self) -> Result<Vec<StateKey>, Error> {
        let id = self.0.session().await?.session().id();
        let keys = self.registry().state(id).keys().await?;
        if keys.is_empty() {
            self.registry().check_live(id).await?;
        }
        Ok(keys)
    }

    /// What there is to say of the session.
    ///
    /// # Errors
    /// If there is no session, or the store does not answer.
    pub async fn info(&self) -> Result<SessionInfo, Error> {
        let session = self.0.session().await?.session();
        self.registry().check_live(session.id()).await?;
        let (record, now) = (session.record(), self.registry().now());
        let name = record.key.as_ref().filter(|key| ["name", "project"].contains(&key.source()));
        Ok(SessionInfo {
            session: session.id(),
            name: name.map(|key| key.value().to_owned()),
            age: now.since(record.created),
            // It is being guard right now.
            expires_in: record.expiry.deadline(record.created, now).map(|end| end.since(now)),
        })
    }

    /// A new handle for the session, for its client and nobody else. Older ones stay good.
    ///
    /// # Errors
    /// If there is no session, or the store does not answer.
    pub async fn issue_handle(&self) -> Result<Handle, Error> {
        let guard = self.0.session().await?;
        if !guard.just_loaded {
            // One that another process has ended would take it, and it would lead nowhere.
            self.registry().check_live(guard.session().id()).await?;
        }
        Ok(self.registry().issue_handle(guard.session()).await?)
    }

    /// Ends the session for good: its values are gone, and its handles lead nowhere.
    ///
    /// # Errors
    /// If there is no session, or the store does not answer.
    pub async fn end(&self) -> Result<(), Error> {
        let id = self.0.session().await?.session().id();
        Ok(self.registry().end(id, EndReason::Closed).await?)
    }

    pub(crate) fn request_session(&self) -> &Arc<RequestSession> {
        &self.0
    }

    fn registry(&self) -> &Arc<crate::registry::SessionRegistry> {
        self.0.sessions().registry()
    }

    /// What a write says, and why the session is gone if it says that.
    async fn explain_missing<T>(
        &self,
        id: SessionId,
        result: Result<T, StateError>,
    ) -> Result<T, Error> {
        if let Err(StateError::Store(StoreError::Missing)) = result {
            self.registry().check_live(id).await?;
        }
        Ok(result?)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({:?})", self.0)
    }
}

/// What there is to say of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its id, which is no secret.
    pub session: SessionId,
    /// The name that somebody chose for it.
    pub name: Option<String>,
    /// How long ago it was begun.
    pub age: Duration,
    /// When it ends if it is not guard again; `None` if never.
    pub expires_in: Option<Duration>,
}

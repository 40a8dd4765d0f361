//! State of the session that a request belongs to.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use stayput_core::{EndReason, Handle, SessionId, StateError, StateKey, StoreError};
use stayput_identify::tools::chosen_name;

use crate::{
    Error,
    request::{RequestSession, scope},
};

/// State of the session that a request belongs to: typed values by key. They live as long as the session, and every
/// process that shares the store sees them.
///
/// It is a parameter of a tool, a prompt or an axum handler. Where a handler gets only a request context, use
/// [`State::from_context`], and in the same task [`State::current`].
///
/// The first of these calls opens the session. Each value is a row in the store: a read costs one read, a change one
/// read and one write. [`State::update`] loses no change when several clients and processes change the same value.
#[derive(Clone)]
pub struct State(Arc<RequestSession>);

impl State {
    pub(crate) fn new(request_session: Arc<RequestSession>) -> Self {
        Self(request_session)
    }

    /// Returns the state of the request that this task handles: inside the layer, and in every tool passed to
    /// [`SessionTools::mount`](crate::SessionTools::mount). A spawned task has none; pass it a clone.
    #[must_use]
    pub fn current() -> Option<Self> {
        scope::current().map(Self)
    }

    /// Returns whether the request identifies a session. If not, the first use of this state returns an error or
    /// creates a session, see [`MissingSession`](crate::MissingSession).
    #[must_use]
    pub fn is_identified(&self) -> bool {
        self.0.is_identified()
    }

    /// Reads the value of `key`.
    ///
    /// # Errors
    /// Returns an error if there is no session, the value is no `T`, or the store is unavailable.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Error> {
        let guard = self.0.session().await?;
        let id = guard.session().id();
        let found = self.registry().state(id).get(key).await?;
        if found.is_none() && !guard.just_loaded {
            // An ended session has no values either.
            self.registry().check_live(id).await?;
        }
        Ok(found)
    }

    /// Writes the value of `key`, and replaces an older one.
    ///
    /// # Errors
    /// Fails like [`State::get`], and if the value is too large.
    pub async fn set<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), Error> {
        let id = self.0.session().await?.session().id();
        self.explain_missing(id, self.registry().state(id).set(key, value).await).await
    }

    /// Changes the value of `key` in place. Starts with the default if there is none.
    ///
    /// `change` runs again on the newer value if another writer was faster, so it should only change its argument.
    /// Returns the result of the last run.
    ///
    /// # Errors
    /// Fails like [`State::set`], and if other writers are faster every time.
    pub async fn update<T, R>(&self, key: &str, change: impl FnMut(&mut T) -> R) -> Result<R, Error>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        let id = self.0.session().await?.session().id();
        self.explain_missing(id, self.registry().state(id).update(key, change).await).await
    }

    /// Removes the value of `key`, if there is one.
    ///
    /// # Errors
    /// Fails like [`State::get`].
    pub async fn remove(&self, key: &str) -> Result<(), Error> {
        let id = self.0.session().await?.session().id();
        self.explain_missing(id, self.registry().state(id).remove(key).await).await
    }

    /// Returns the keys in order, with the size of each value.
    ///
    /// # Errors
    /// Fails like [`State::get`].
    pub async fn keys(&self) -> Result<Vec<StateKey>, Error> {
        let id = self.0.session().await?.session().id();
        let keys = self.registry().state(id).keys().await?;
        if keys.is_empty() {
            self.registry().check_live(id).await?;
        }
        Ok(keys)
    }

    /// Returns id, name, age and expiry of the session.
    ///
    /// # Errors
    /// Returns an error if there is no session, or the store is unavailable.
    pub async fn info(&self) -> Result<SessionInfo, Error> {
        let session = self.0.session().await?.session();
        self.registry().check_live(session.id()).await?;
        let (record, now) = (session.record(), self.registry().now());
        Ok(SessionInfo {
            session: session.id(),
            name: chosen_name(&record).map(str::to_owned),
            age: now.since(record.created),
            // The session is in use now.
            expires_in: record.expiry.deadline(record.created, now).map(|end| end.since(now)),
        })
    }

    /// Issues a new handle for the session. It is a secret of the client. Older handles stay valid.
    ///
    /// # Errors
    /// Returns an error if there is no session, or the store is unavailable.
    pub async fn issue_handle(&self) -> Result<Handle, Error> {
        let guard = self.0.session().await?;
        if !guard.just_loaded {
            // The store would accept a handle for a session that ended elsewhere.
            self.registry().check_live(guard.session().id()).await?;
        }
        Ok(self.registry().issue_handle(guard.session()).await?)
    }

    /// Ends the session: its values are deleted, and its handles become invalid.
    ///
    /// # Errors
    /// Returns an error if there is no session, or the store is unavailable.
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

    /// Replaces the error about a missing row by the reason why the session ended.
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

/// Id, name, age and expiry of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Id of the session, which is not a secret.
    pub session: SessionId,
    /// Name chosen by the client.
    pub name: Option<String>,
    /// Time since the session was created.
    pub age: Duration,
    /// Time until the session ends if it is not used again; `None` if it does not expire.
    pub expires_in: Option<Duration>,
}

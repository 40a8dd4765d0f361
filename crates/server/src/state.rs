//! The state of the session that a request belongs to.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use stayput_core::{EndReason, Handle, SessionId, StateError, StateKey, StoreError};

use crate::{Error, scope, visit::Visit};

/// The state of the session that a request belongs to: typed values by key, kept for as long as the session
/// lives, whichever process answers the next request.
///
/// It is a parameter of a tool, a prompt or an axum handler. Where a handler gets only the context of a
/// request, [`State::of`] takes it from there, and [`State::current`] from the task.
///
/// The session is found by the first of these calls, and not before. Each value is a row of its own in the store:
/// reading costs one read, changing one read and one write, and [`State::update`] never loses a change, however
/// many clients and processes change the same value.
#[derive(Clone)]
pub struct State(Arc<Visit>);

impl State {
    pub(crate) fn new(visit: Arc<Visit>) -> Self {
        Self(visit)
    }

    /// The state of the request that this task works on: inside the layer, and inside every tool that
    /// [`Tools::mount`](crate::Tools::mount) was given. A task of its own has none; give it a clone.
    #[must_use]
    pub fn current() -> Option<Self> {
        scope::current().map(Self)
    }

    /// Whether the request says which session it means. If it does not, the first use of this state asks its client to,
    /// or makes one, see [`Unnamed`](crate::Unnamed).
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.0.is_named()
    }

    /// Reads the value under `key`.
    ///
    /// # Errors
    /// If there is no session, the value is no `T`, or the store does not answer.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Error> {
        let used = self.0.session().await?;
        let id = used.held().id();
        let found = self.shared().state(id).get(key).await?;
        if found.is_none() && !used.fresh {
            // A session that is over has no values either.
            self.shared().verdict(id).await?;
        }
        Ok(found)
    }

    /// Writes the value under `key`, whatever was there.
    ///
    /// # Errors
    /// As [`State::get`], and if the value is too large.
    pub async fn set<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), Error> {
        let id = self.0.session().await?.held().id();
        self.judged(id, self.shared().state(id).set(key, value).await).await
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
        let id = self.0.session().await?.held().id();
        self.judged(id, self.shared().state(id).update(key, change).await).await
    }

    /// Removes the value under `key`. Removing what is not there is fine.
    ///
    /// # Errors
    /// As [`State::get`].
    pub async fn remove(&self, key: &str) -> Result<(), Error> {
        let id = self.0.session().await?.held().id();
        self.judged(id, self.shared().state(id).remove(key).await).await
    }

    /// The keys in order, with the size of each value.
    ///
    /// # Errors
    /// As [`State::get`].
    pub async fn keys(&self) -> Result<Vec<StateKey>, Error> {
        let id = self.0.session().await?.held().id();
        let keys = self.shared().state(id).keys().await?;
        if keys.is_empty() {
            self.shared().verdict(id).await?;
        }
        Ok(keys)
    }

    /// What there is to say of the session.
    ///
    /// # Errors
    /// If there is no session, or the store does not answer.
    pub async fn info(&self) -> Result<Info, Error> {
        let held = self.0.session().await?.held();
        self.shared().verdict(held.id()).await?;
        let (record, now) = (held.record(), self.shared().now());
        let name = record.key.as_ref().filter(|key| ["name", "project"].contains(&key.source()));
        Ok(Info {
            session: held.id(),
            name: name.map(|key| key.value().to_owned()),
            age: now.since(record.created),
            // It is being used right now.
            expires_in: record.expiry.deadline(record.created, now).map(|end| end.since(now)),
        })
    }

    /// A new handle for the session, for its client and nobody else. Older ones stay good.
    ///
    /// # Errors
    /// If there is no session, or the store does not answer.
    pub async fn handle(&self) -> Result<Handle, Error> {
        let used = self.0.session().await?;
        if !used.fresh {
            // One that another process has ended would take it, and it would lead nowhere.
            self.shared().verdict(used.held().id()).await?;
        }
        Ok(self.shared().issue(used.held()).await?)
    }

    /// Ends the session for good: its values are gone, and its handles lead nowhere.
    ///
    /// # Errors
    /// If there is no session, or the store does not answer.
    pub async fn end(&self) -> Result<(), Error> {
        let id = self.0.session().await?.held().id();
        Ok(self.shared().end(id, EndReason::Closed).await?)
    }

    pub(crate) fn visit(&self) -> &Arc<Visit> {
        &self.0
    }

    fn shared(&self) -> &Arc<crate::shared::Shared> {
        self.0.keeper().shared()
    }

    /// What a write says, and why the session is gone if it says that.
    async fn judged<T>(&self, id: SessionId, said: Result<T, StateError>) -> Result<T, Error> {
        if let Err(StateError::Store(StoreError::Missing)) = said {
            self.shared().verdict(id).await?;
        }
        Ok(said?)
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
pub struct Info {
    /// Its id, which is no secret.
    pub session: SessionId,
    /// The name that somebody chose for it.
    pub name: Option<String>,
    /// How long ago it was begun.
    pub age: Duration,
    /// When it ends if it is not used again; `None` if never.
    pub expires_in: Option<Duration>,
}

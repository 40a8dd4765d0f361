//! Values that a session stores for its owner.

use std::{fmt, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Blame, ExpectedValue, InvalidText, Lease, Retry, Revision, SessionId, StateKey, StateLimits,
    StateWrite, Store, StoreError, identity::text,
};

/// State of one session: typed values by key, each in its own row of the store.
///
/// Nothing is cached here. Any number of processes may work on the state of one session:
/// [`State::update`] never loses a change.
///
/// ```
/// # use std::{fmt, sync::Arc};
/// # use stayput_core::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
/// # let record = Record::new(Owner::local(), Expiry::NEVER, SystemClock.now());
/// # store.insert(&record, None).await?;
/// # let state = State::new(store, record.id, None, StateLimits::default());
/// let size = state
///     .update("cart", |cart: &mut Vec<String>| {
///         cart.push("apple".into());
///         cart.len()
///     })
///     .await?;
/// assert_eq!(size, 1);
/// assert_eq!(state.get::<Vec<String>>("cart").await?, Some(vec!["apple".to_owned()]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct State {
    store: Arc<dyn Store>,
    session: SessionId,
    by: Option<Lease>,
    limits: StateLimits,
}

/// Maximum attempts of [`State::update`]. In every round one writer succeeds, so only very many
/// writers on one key can make one of them fail.
const MAX_UPDATE_ATTEMPTS: u32 = 128;

impl State {
    /// Opens the state of `session` in `store`. Writes carry the lease `by`.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        session: SessionId,
        by: Option<Lease>,
        limits: StateLimits,
    ) -> Self {
        Self { store, session, by, limits }
    }

    /// Reads the value under `key`.
    ///
    /// # Errors
    /// [`StateError::Decode`] if it is not a `T`, or an error of the store.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StateError> {
        Ok(self.read(key).await?.map(|(_, value)| value))
    }

    /// Writes the value under `key` and replaces an existing one.
    ///
    /// # Errors
    /// [`StateError::Encode`] if it has no JSON form, or an error of the store.
    pub async fn set<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), StateError> {
        self.write(key, value, ExpectedValue::Any).await
    }

    /// Changes the value under `key` in place, starting from the default if there is none.
    ///
    /// `change` runs again on the newer value whenever another writer was faster, so it should only
    /// change its argument. The result of the last run is returned.
    ///
    /// # Errors
    /// [`StateError::Contended`] if other writers were faster every time, or as [`State::get`] and
    /// [`State::set`].
    pub async fn update<T, R>(
        &self,
        key: &str,
        mut change: impl FnMut(&mut T) -> R,
    ) -> Result<R, StateError>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        for _ in 0..MAX_UPDATE_ATTEMPTS {
            let (expected, mut value) = match self.read::<T>(key).await? {
                Some((revision, value)) => (ExpectedValue::At(revision), value),
                None => (ExpectedValue::Absent, T::default()),
            };
            let returned = change(&mut value);
            match self.write(key, &value, expected).await {
                Ok(()) => return Ok(returned),
                // Only a write that did not happen is tried again. After `Unavailable` it may have
                // happened, and the change must not be applied twice.
                Err(StateError::Store(StoreError::Stale)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(StateError::Contended { attempts: MAX_UPDATE_ATTEMPTS })
    }

    /// Removes the value under `key`. A missing value is not an error.
    ///
    /// # Errors
    /// An error of the store.
    pub async fn remove(&self, key: &str) -> Result<(), StateError> {
        Ok(self.store.remove_state(self.session, key, ExpectedValue::Any, self.by).await?)
    }

    /// Lists the keys in order, with the size of each value.
    ///
    /// # Errors
    /// An error of the store.
    pub async fn keys(&self) -> Result<Vec<StateKey>, StateError> {
        Ok(self.store.list_state_keys(self.session).await?)
    }

    async fn read<T: DeserializeOwned>(
        &self,
        key: &str,
    ) -> Result<Option<(Revision, T)>, StateError> {
        match self.store.load_state(self.session, key).await? {
            None => Ok(None),
            Some(found) => match serde_json::from_slice(&found.bytes) {
                Ok(value) => Ok(Some((found.revision, value))),
                Err(error) => {
                    let (line, column) = (error.line(), error.column());
                    Err(StateError::Decode { key: key.to_owned(), line, column })
                }
            },
        }
    }

    async fn write<T: Serialize + ?Sized>(
        &self,
        key: &str,
        value: &T,
        expected: ExpectedValue,
    ) -> Result<(), StateError> {
        text::check("a key of the session's state", key, self.limits.key)?;
        let bytes = serde_json::to_vec(value)
            .map_err(|source| StateError::Encode { key: key.to_owned(), source })?;
        let write = StateWrite { key, bytes: &bytes, expected, limits: self.limits };
        self.store.put_state(self.session, write, self.by).await?;
        Ok(())
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({})", self.session)
    }
}

/// Error of reading or changing the state of a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The key is not valid.
    #[error(transparent)]
    Key(#[from] InvalidText),
    /// The value has no JSON form.
    #[error("the value for '{key}' cannot be written as JSON")]
    Encode {
        /// Key of the value.
        key: String,
        /// Error of serde.
        source: serde_json::Error,
    },
    /// The value under the key has another type. The error does not repeat it, because it may be a
    /// secret.
    #[error(
        "the value under '{key}' does not have the requested type, at line {line}, column {column}"
    )]
    Decode {
        /// The key.
        key: String,
        /// Line of the value at which decoding failed.
        line: usize,
        /// Column at which decoding failed.
        column: usize,
    },
    /// Other writers were faster every time.
    #[error("other writers were faster {attempts} times in a row; try again later")]
    Contended {
        /// Number of attempts.
        attempts: u32,
    },
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StateError {
    /// Returns whose fault the error is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Key(_) | Self::Encode { .. } | Self::Decode { .. } => Blame::Caller,
            Self::Contended { .. } => Blame::Here,
            Self::Store(error) => error.blame(),
        }
    }

    /// Returns whether a retry can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Key(_) | Self::Encode { .. } | Self::Decode { .. } => Retry::Never,
            Self::Contended { .. } => Retry::Later,
            Self::Store(error) => error.retry(),
        }
    }
}

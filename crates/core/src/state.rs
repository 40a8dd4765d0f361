//! The values a session keeps for its owner.

use std::{fmt, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Blame, Expect, InvalidText, Lease, Put, Retry, Revision, SessionId, StateKey, StateLimits,
    Store, StoreError, text,
};

/// The state of one session: typed values by key, each a row of its own in the store.
///
/// Nothing is kept here. Any number of these, in any number of processes, may work on one session:
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

/// How often [`State::update`] begins again before it gives up. In every round somebody succeeds, so
/// it takes very many writers on one key to make one of them fail.
const ATTEMPTS: u32 = 128;

impl State {
    /// The state of `session` in `store`, written under the lease `by`.
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
    /// [`StateError::Decode`] if it is not a `T`, or what the store says.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StateError> {
        Ok(self.read(key).await?.map(|(_, value)| value))
    }

    /// Writes the value under `key`, whatever was there.
    ///
    /// # Errors
    /// [`StateError::Encode`] if it has no JSON form, or what the store says.
    pub async fn set<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), StateError> {
        self.write(key, value, Expect::Any).await
    }

    /// Changes the value under `key` in place, beginning with the default where there is none.
    ///
    /// `change` runs again on the newer value whenever somebody else wrote meanwhile, so it should do
    /// nothing but change its argument. What it returns in the round that counted is returned.
    ///
    /// # Errors
    /// [`StateError::Contended`] if others keep writing first, or as [`State::get`] and [`State::set`].
    pub async fn update<T, R>(
        &self,
        key: &str,
        mut change: impl FnMut(&mut T) -> R,
    ) -> Result<R, StateError>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        for _ in 0..ATTEMPTS {
            let (expect, mut value) = match self.read::<T>(key).await? {
                Some((revision, value)) => (Expect::At(revision), value),
                None => (Expect::Absent, T::default()),
            };
            let returned = change(&mut value);
            match self.write(key, &value, expect).await {
                Ok(()) => return Ok(returned),
                // Only a write that surely did not happen is tried again. After `Unavailable` it
                // may have happened, and the change must not be applied twice.
                Err(StateError::Store(StoreError::Stale)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(StateError::Contended { attempts: ATTEMPTS })
    }

    /// Removes the value under `key`. Removing what is not there is fine.
    ///
    /// # Errors
    /// What the store says.
    pub async fn remove(&self, key: &str) -> Result<(), StateError> {
        Ok(self.store.remove_state(self.session, key, Expect::Any, self.by).await?)
    }

    /// The keys in order, with the size of each value.
    ///
    /// # Errors
    /// What the store says.
    pub async fn keys(&self) -> Result<Vec<StateKey>, StateError> {
        Ok(self.store.state_keys(self.session).await?)
    }

    async fn read<T: DeserializeOwned>(
        &self,
        key: &str,
    ) -> Result<Option<(Revision, T)>, StateError> {
        match self.store.state(self.session, key).await? {
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
        expect: Expect,
    ) -> Result<(), StateError> {
        text::check("a key of the session's state", key, self.limits.key)?;
        let bytes = serde_json::to_vec(value)
            .map_err(|source| StateError::Encode { key: key.to_owned(), source })?;
        let put = Put { key, bytes: &bytes, expect, limits: self.limits };
        self.store.put_state(self.session, put, self.by).await?;
        Ok(())
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({})", self.session)
    }
}

/// Why the state of a session could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The key cannot be one.
    #[error(transparent)]
    Key(#[from] InvalidText),
    /// The value has no JSON form.
    #[error("the value for '{key}' cannot be written as JSON")]
    Encode {
        /// Under which key it was to be.
        key: String,
        /// What serde says.
        source: serde_json::Error,
    },
    /// The value under the key is of another type. What it is is not told: it may be a secret.
    #[error(
        "the value under '{key}' is not of the type asked for, at line {line}, column {column}"
    )]
    Decode {
        /// The key.
        key: String,
        /// The line of the value at which it shows.
        line: usize,
        /// The column.
        column: usize,
    },
    /// Others wrote first every time.
    #[error("others wrote first {attempts} times in a row; try again later")]
    Contended {
        /// How often it was tried.
        attempts: u32,
    },
    /// The store said no, or nothing.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StateError {
    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Key(_) | Self::Encode { .. } | Self::Decode { .. } => Blame::Caller,
            Self::Contended { .. } => Blame::Here,
            Self::Store(error) => error.blame(),
        }
    }

    /// Whether it helps to try again.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Key(_) | Self::Encode { .. } | Self::Decode { .. } => Retry::Never,
            Self::Contended { .. } => Retry::Later,
            Self::Store(error) => error.retry(),
        }
    }
}

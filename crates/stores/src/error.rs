//! Errors of opening a store, and conversion of the drivers' errors.

use std::error::Error;

use stayput_core::StoreError;

use crate::AddressError;

/// Error of opening a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreOpenError {
    /// The URL is not valid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// This program was built without this kind of store.
    #[error("this program was built without the feature '{feature}', which this store needs")]
    NotBuilt {
        /// Name of the feature.
        feature: &'static str,
    },
    /// A newer version of the program wrote this store. Nothing was changed.
    #[error(
        "the {store} store has schema {found}, and this program knows schemas up to {known}; \
         run the newer version of it"
    )]
    NewerSchema {
        /// Kind of store.
        store: &'static str,
        /// Schema of the store.
        found: i64,
        /// Newest schema that this program knows.
        known: i64,
    },
    /// An older, incompatible version wrote this store. Nothing was changed.
    #[error(
        "the {store} store has schema {found}, and this program needs at least schema {oldest}; \
         name another store, or remove this one, which loses its sessions"
    )]
    OlderSchema {
        /// Kind of store.
        store: &'static str,
        /// Schema of the store.
        found: i64,
        /// Oldest schema that this program can migrate.
        oldest: i64,
    },
    /// A file that the store needs cannot be used.
    #[error("{path} cannot be used: {problem}")]
    File {
        /// Path of the file.
        path: std::path::PathBuf,
        /// Problem with the file.
        problem: String,
    },
    /// The database cannot be reached, or refuses the credentials.
    #[error("the {store} store cannot be opened: {problem}")]
    Unreachable {
        /// Kind of store.
        store: &'static str,
        /// Error of the driver.
        problem: String,
    },
}

impl StoreOpenError {
    /// Converts an error of the driver. The message has the whole chain of sources, because drivers
    /// put the useful part at its end ("error connecting to server: …").
    pub(crate) fn unreachable(store: &'static str, error: &dyn Error) -> Self {
        Self::Unreachable { store, problem: chain(error) }
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = error.source();
    }
    text
}

/// Builds the error for stored data that cannot be decoded.
pub(crate) fn corrupt(
    store: &'static str,
    what: &'static str,
    source: impl Into<Box<dyn Error + Send + Sync>>,
) -> StoreError {
    StoreError::Corrupt { store, what, source: source.into() }
}

/// Builds the error for a database that did not answer, or not in time.
pub(crate) fn unavailable(
    store: &'static str,
    source: impl Into<Box<dyn Error + Send + Sync>>,
) -> StoreError {
    tracing::debug!(store, "the store is away");
    StoreError::Unavailable { store, source: source.into() }
}

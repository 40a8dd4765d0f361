//! Why a database could not be opened, and how drivers' errors become ours.

use std::error::Error;

use stayput_core::StoreError;

use crate::AddressError;

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is wrong.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// This program was built without that kind of store.
    #[error("this program was built without the feature '{feature}', which this store needs")]
    NotBuilt {
        /// The feature.
        feature: &'static str,
    },
    /// A newer version of the program has been here. Nothing was changed.
    #[error(
        "the {store} store has schema {found}, and this program knows schemas up to {known}; \
         run the newer version of it"
    )]
    NewerSchema {
        /// Which kind of store.
        store: &'static str,
        /// The schema that is there.
        found: i64,
        /// The newest one this program knows.
        known: i64,
    },
    /// A file that the store needs cannot be used.
    #[error("{path} cannot be used: {problem}")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The database cannot be reached, or does not let us in.
    #[error("the {store} store cannot be opened: {problem}")]
    Unreachable {
        /// Which kind of store.
        store: &'static str,
        /// What the driver says.
        problem: String,
    },
}

impl OpenError {
    /// The driver said no while a store was being opened; the whole chain of reasons is told, because
    /// drivers like to hide what matters ("error connecting to server") at its end.
    pub(crate) fn unreachable(store: &'static str, error: &dyn Error) -> Self {
        Self::Unreachable { store, problem: chain(error) }
    }
}

fn chain(error: &dyn Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let more = error.to_string();
        if !said.contains(&more) {
            said = format!("{said}: {more}");
        }
        next = error.source();
    }
    said
}

/// What a store holds cannot be read.
pub(crate) fn corrupt(
    store: &'static str,
    what: &'static str,
    source: impl Into<Box<dyn Error + Send + Sync>>,
) -> StoreError {
    StoreError::Corrupt { store, what, source: source.into() }
}

/// A database did not answer, or not in time.
pub(crate) fn unavailable(
    store: &'static str,
    source: impl Into<Box<dyn Error + Send + Sync>>,
) -> StoreError {
    StoreError::Unavailable { store, source: source.into() }
}

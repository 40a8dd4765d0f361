//! Index of all live sessions, as the dashboard sorts and filters them.

use std::{sync::Arc, time::Duration};

use stayput_core::Record;
use stayput_sync::Mutex;
use tokio::time::Instant;

/// Shortest time for which an index is fresh.
const FRESH: Duration = Duration::from_secs(2);

/// An index is fresh for this many times the time that it took to build it, so that building it takes at most a
/// twentieth of the time.
const REUSE: u32 = 20;

/// Time to build an index above which a stale one is used until the next one is there.
const SLOW: Duration = Duration::from_millis(50);

/// Time after which an index is dropped, because no page asks for it any more.
pub(crate) const DROP_AFTER: Duration = Duration::from_secs(60);

/// Session in the index: its record, and the values that it is sorted by.
#[derive(Debug)]
pub(crate) struct SessionRow {
    pub(crate) record: Arc<Record>,
    /// Text in which a filter looks, in lower case.
    pub(crate) text: String,
    pub(crate) name: String,
    pub(crate) state: &'static str,
    pub(crate) servers: Vec<String>,
    pub(crate) idle_seconds: u64,
    /// Seconds until the session expires. The highest number if it does not.
    pub(crate) expires_seconds: u64,
    pub(crate) calls: u64,
    pub(crate) memory_bytes: u64,
}

/// Rows of an index.
pub(crate) type SessionRows = Arc<Vec<SessionRow>>;

/// Places of rows that match a search, in its order.
pub(crate) type Matches = Arc<Vec<usize>>;

/// Last index, and the last search in it.
#[derive(Debug, Default)]
pub(crate) struct SessionIndex(Mutex<Option<CachedIndex>>);

#[derive(Debug)]
struct CachedIndex {
    rows: SessionRows,
    /// Whether memory was measured.
    measured: bool,
    at: Instant,
    took: Duration,
    /// Whether the next index is being built.
    renewing: bool,
    /// Last search, with its parameters.
    found: Option<(String, Matches)>,
}

/// Usable index, if there is one.
pub(crate) enum IndexState {
    Fresh(SessionRows),
    /// The caller uses it, and builds the next one in the background.
    Stale(SessionRows),
    /// The caller builds one.
    Missing,
}

impl SessionIndex {
    /// Returns the last index. With `measured`, only one with measurements counts.
    pub(crate) fn get(&self, measured: bool) -> IndexState {
        let mut built = self.0.lock();
        let Some(built) = built.as_mut().filter(|it| it.measured || !measured) else {
            return IndexState::Missing;
        };
        let age = built.at.elapsed();
        if age < FRESH.max(built.took.saturating_mul(REUSE)) || built.renewing {
            IndexState::Fresh(built.rows.clone())
        } else if built.took > SLOW && age < DROP_AFTER {
            built.renewing = true;
            IndexState::Stale(built.rows.clone())
        } else {
            IndexState::Missing
        }
    }

    /// Stores an index that was begun at this time.
    pub(crate) fn set(
        &self,
        rows: Vec<SessionRow>,
        (measured, begun): (bool, Instant),
    ) -> SessionRows {
        let (rows, at, took) = (Arc::new(rows), Instant::now(), begun.elapsed());
        let built =
            CachedIndex { rows: rows.clone(), measured, at, took, renewing: false, found: None };
        *self.0.lock() = Some(built);
        rows
    }

    /// Returns the matches of a search, which is run by `search` unless it is the same as before.
    pub(crate) fn matches(
        &self,
        rows: &SessionRows,
        parameters: String,
        search: impl FnOnce() -> Vec<usize>,
    ) -> Matches {
        let current = |built: &&mut CachedIndex| Arc::ptr_eq(&built.rows, rows);
        if let Some((known, found)) =
            self.0.lock().as_mut().filter(current).and_then(|it| it.found.as_ref())
            && *known == parameters
        {
            return found.clone();
        }
        let found = Arc::new(search());
        if let Some(built) = self.0.lock().as_mut().filter(current) {
            built.found = Some((parameters, found.clone()));
        }
        found
    }

    /// Drops the index, because sessions have changed.
    pub(crate) fn clear(&self) {
        self.0.lock().take();
    }

    /// Drops an index that was built long ago.
    pub(crate) fn drop_old(&self) {
        let mut built = self.0.lock();
        if built.as_ref().is_some_and(|it| it.at.elapsed() >= DROP_AFTER) {
            *built = None;
        }
    }
}

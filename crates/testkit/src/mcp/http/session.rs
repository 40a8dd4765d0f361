//! Legacy sessions over HTTP.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use stayput_wire::Version;

use super::{super::scope::Scope, stream::Stream};

/// Session with its state and all its streams.
pub(super) struct Session {
    pub(super) id: String,
    pub(super) scope: Arc<Scope>,
    /// Messages outside of calls, for the GET stream.
    pub(super) standalone: Arc<Stream>,
    streams: Mutex<HashMap<u64, Arc<Stream>>>,
    ids: bool,
}

impl Session {
    pub(super) fn new(ids: bool) -> Arc<Self> {
        let standalone = Stream::new(0, ids);
        Arc::new(Self {
            id: crate::server::fresh_name(),
            scope: Scope::new(standalone.clone()),
            streams: Mutex::new(HashMap::from([(0, standalone.clone())])),
            standalone,
            ids,
        })
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u64, Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open_stream(&self) -> Arc<Stream> {
        let mut streams = self.streams();
        let number = streams.len() as u64;
        let stream = Stream::new(number, self.ids);
        streams.insert(number, stream.clone());
        stream
    }

    pub(super) fn stream(&self, number: u64) -> Option<Arc<Stream>> {
        self.streams().get(&number).cloned()
    }

    /// Returns whether streams of its revision begin with an empty event.
    pub(super) fn primes(&self) -> bool {
        self.ids && self.scope.state().version >= Some(Version::V2025_11_25)
    }

    pub(super) fn end(&self) {
        for stream in self.streams().values() {
            stream.finish();
        }
    }
}

/// All sessions by id.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<String, Arc<Session>>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, session: Arc<Session>) {
        self.lock().insert(session.id.clone(), session);
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Session>> {
        self.lock().get(id).cloned()
    }

    pub(super) fn remove(&self, id: &str) -> Option<Arc<Session>> {
        self.lock().remove(id)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Forgets all sessions, like a restart.
    pub(super) fn clear(&self) {
        let gone = std::mem::take(&mut *self.lock());
        for session in gone.values() {
            session.end();
        }
    }
}

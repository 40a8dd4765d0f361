//! The requests of a session that were not answered yet.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rmcp::model::{ClientJsonRpcMessage, RequestId};

/// The requests that were not answered yet. A call runs on when nobody reads its stream any rest.
#[derive(Default)]
pub(super) struct InFlight(Mutex<RequestIds>);

/// Nearly always there is first, and then nothing is hashed.
#[derive(Default)]
struct RequestIds {
    first: Option<RequestId>,
    rest: HashSet<RequestId>,
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, RequestIds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, id: RequestId) {
        let mut ids = self.lock();
        if ids.first.is_none() {
            ids.first = Some(id);
        } else {
            ids.rest.insert(id);
        }
    }

    pub(super) fn remove(&self, id: &RequestId) {
        let mut ids = self.lock();
        ids.first.take_if(|first| first == id);
        if !ids.rest.is_empty() {
            ids.rest.remove(id);
        }
    }

    pub(super) fn len(&self) -> usize {
        let ids = self.lock();
        ids.rest.len() + usize::from(ids.first.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A request on its way to the session. If it does not get there, there will be no answer.
pub(super) struct InFlightGuard<'a> {
    in_flight: &'a InFlight,
    id: Option<RequestId>,
}

impl<'a> InFlightGuard<'a> {
    pub(super) fn new(in_flight: &'a InFlight, message: &ClientJsonRpcMessage) -> Self {
        let id = match message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        if let Some(id) = id.clone() {
            in_flight.insert(id);
        }
        Self { in_flight, id }
    }

    /// It got there: its answer ends it.
    pub(super) fn disarm(mut self) {
        self.id = None;
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.in_flight.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session with a call in flight is not silent: each call counts until its own answer, whatever came before it.
    #[test]
    fn each_is_in_flight_until_it_ends() {
        let ids = InFlight::default();
        let ids = [1, 2, 3].map(RequestId::Number);
        ids.iter().for_each(|id| ids.insert(id.clone()));
        assert_eq!(ids.len(), 3);
        ids.remove(&ids[0]);
        ids.insert(ids[1].clone());
        ids.remove(&ids[2]);
        assert!(!ids.is_empty());
        ids.remove(&ids[1]);
        assert!(ids.is_empty());
    }
}

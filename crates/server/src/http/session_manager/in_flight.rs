//! Requests of a session that have no response yet.

use std::collections::HashSet;

use rmcp::model::{ClientJsonRpcMessage, RequestId};
use stayput_sync::Mutex;

/// Requests without a response. A call continues after its stream was dropped.
#[derive(Default)]
pub(super) struct InFlight(Mutex<RequestIds>);

/// Usually one request is in flight, and then no hashing is needed.
#[derive(Default)]
struct RequestIds {
    first: Option<RequestId>,
    rest: HashSet<RequestId>,
}

impl InFlight {
    fn insert(&self, id: RequestId) {
        let mut ids = self.0.lock();
        if ids.first.is_none() {
            ids.first = Some(id);
        } else {
            ids.rest.insert(id);
        }
    }

    pub(super) fn remove(&self, id: &RequestId) {
        let mut ids = self.0.lock();
        ids.first.take_if(|first| first == id);
        if !ids.rest.is_empty() {
            ids.rest.remove(id);
        }
    }

    pub(super) fn len(&self) -> usize {
        let ids = self.0.lock();
        ids.rest.len() + usize::from(ids.first.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Guard of a request that is being handed to the session. On drop, the request is removed: it never arrived and gets
/// no response.
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

    /// Keeps the request: it has arrived, and its response removes it.
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

    /// Each call counts until its own response, in any order.
    #[test]
    fn request_is_in_flight_until_its_own_response() {
        let in_flight = InFlight::default();
        let ids = [1, 2, 3].map(RequestId::Number);
        ids.iter().for_each(|id| in_flight.insert(id.clone()));
        assert_eq!(in_flight.len(), 3);
        in_flight.remove(&ids[0]);
        in_flight.insert(ids[1].clone());
        in_flight.remove(&ids[2]);
        assert!(!in_flight.is_empty());
        in_flight.remove(&ids[1]);
        assert!(in_flight.is_empty());
    }
}

//! The requests of a session that were not answered yet.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rmcp::model::{ClientJsonRpcMessage, RequestId};

/// The requests that were not answered yet. A call runs on when nobody reads its stream any more.
#[derive(Default)]
pub(super) struct InFlight(Mutex<Requests>);

/// Nearly always there is one, and then nothing is hashed.
#[derive(Default)]
struct Requests {
    one: Option<RequestId>,
    more: HashSet<RequestId>,
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, id: RequestId) {
        let mut all = self.lock();
        if all.one.is_none() {
            all.one = Some(id);
        } else {
            all.more.insert(id);
        }
    }

    pub(super) fn end(&self, id: &RequestId) {
        let mut all = self.lock();
        all.one.take_if(|one| one == id);
        if !all.more.is_empty() {
            all.more.remove(id);
        }
    }

    pub(super) fn len(&self) -> usize {
        let all = self.lock();
        all.more.len() + usize::from(all.one.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A request on its way to the session. If it does not get there, there will be no answer.
pub(super) struct Begun<'a> {
    in_flight: &'a InFlight,
    id: Option<RequestId>,
}

impl<'a> Begun<'a> {
    pub(super) fn of(in_flight: &'a InFlight, message: &ClientJsonRpcMessage) -> Self {
        let id = match message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        if let Some(id) = id.clone() {
            in_flight.begin(id);
        }
        Self { in_flight, id }
    }

    /// It got there: its answer ends it.
    pub(super) fn arrived(mut self) {
        self.id = None;
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.in_flight.end(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session with a call in flight is not silent: each call counts until its own answer, whatever came before it.
    #[test]
    fn each_is_in_flight_until_it_ends() {
        let all = InFlight::default();
        let ids = [1, 2, 3].map(RequestId::Number);
        ids.iter().for_each(|id| all.begin(id.clone()));
        assert_eq!(all.len(), 3);
        all.end(&ids[0]);
        all.begin(ids[1].clone());
        all.end(&ids[2]);
        assert!(!all.is_empty());
        all.end(&ids[1]);
        assert!(all.is_empty());
    }
}

//! Calls of a client in flight, by the client's ids.

use std::sync::Arc;

use stayput_upstream::Canceller;

use super::{Activity, Connection};

/// Call in flight, registered before it is sent.
pub(super) struct InFlightCall {
    number: u64,
    /// Id of the client, as it was written.
    id: Arc<str>,
    /// Handle to cancel the call, once it was sent.
    pub(super) call: Option<Canceller>,
    /// The client cancelled the call before it was sent.
    cancelled: bool,
}

impl Connection {
    /// Number of calls in flight.
    pub(crate) fn calls_in_flight(&self) -> usize {
        self.activity.lock().calls.len()
    }

    /// Registers the id of a call before the call is made. `None` if a call with this id is in flight.
    pub(crate) fn begin(self: &Arc<Self>, id: &Arc<str>) -> Option<InFlight> {
        let mut activity = self.activity.lock();
        if activity.calls.iter().any(|flight| flight.id == *id) {
            return None;
        }
        activity.flights += 1;
        let number = activity.flights;
        // Reserve one place only: most clients have one call at a time.
        let few = activity.calls.capacity() == 0;
        activity.calls.reserve_exact(usize::from(few));
        activity.calls.push(InFlightCall { number, id: id.clone(), call: None, cancelled: false });
        Some(InFlight { connection: self.clone(), number })
    }

    /// Cancels a call of the client.
    pub(crate) fn cancel(&self, id: &str) {
        let mut activity = self.activity.lock();
        let flight = activity.calls.iter_mut().find(|flight| *flight.id == *id);
        let call = flight.and_then(|flight| {
            flight.cancelled = true;
            flight.call.clone()
        });
        drop(activity);
        if let Some(call) = call {
            call.cancel();
        }
    }
}

impl Activity {
    /// Finds a call by its number; `None` after the connection was closed.
    fn flight(&mut self, number: u64) -> Option<&mut InFlightCall> {
        self.calls.iter_mut().find(|flight| flight.number == number)
    }
}

/// Guard of a call in flight; removes the call when it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    connection: Arc<Connection>,
    number: u64,
}

impl InFlight {
    /// Whether the client cancelled the call, or the connection was closed.
    pub(crate) fn is_cancelled(&self) -> bool {
        let mut activity = self.connection.activity.lock();
        activity.flight(self.number).is_none_or(|flight| flight.cancelled)
    }

    /// Records that the call was sent. Cancels it at once if the client cancelled it meanwhile.
    pub(crate) fn sent(&self, call: &Canceller) {
        let cancelled = {
            let mut activity = self.connection.activity.lock();
            match activity.flight(self.number) {
                Some(flight) => {
                    flight.call = Some(call.clone());
                    flight.cancelled
                }
                // The whole connection was closed.
                None => true,
            }
        };
        if cancelled {
            call.cancel();
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut activity = self.connection.activity.lock();
        let at = activity.calls.iter().position(|flight| flight.number == self.number);
        let source = at.map(|at| activity.calls.swap_remove(at));
        // An idle connection keeps no list.
        let list = activity.calls.is_empty().then(|| std::mem::take(&mut activity.calls));
        drop(activity);
        drop((source, list));
    }
}

//! Calls of a client in flight, by the client's ids.

use std::sync::Arc;

use stayput_upstream::Canceller;

use super::{Connection, UnderWay};

/// Call in flight, registered before it is sent.
pub(super) struct Flight {
    number: u64,
    /// Id of the client, as it was written.
    id: Arc<str>,
    /// Set after the call was sent.
    pub(super) call: Option<Canceller>,
    /// The client cancelled the call before it was sent.
    cancelled: bool,
}

impl Connection {
    /// Registers the id of a call before the call is made. `None` if a call with this id is in flight.
    pub(crate) fn begin(self: &Arc<Self>, id: &Arc<str>) -> Option<InFlight> {
        let mut under_way = self.under_way();
        if under_way.calls.iter().any(|flight| flight.id == *id) {
            return None;
        }
        under_way.flights += 1;
        let number = under_way.flights;
        // Reserve one place only: most clients have one call at a time.
        let few = under_way.calls.capacity() == 0;
        under_way.calls.reserve_exact(usize::from(few));
        under_way.calls.push(Flight { number, id: id.clone(), call: None, cancelled: false });
        Some(InFlight { connection: self.clone(), number })
    }

    /// Cancels a call of the client.
    pub(crate) fn cancel(&self, id: &str) {
        let mut under_way = self.under_way();
        let flight = under_way.calls.iter_mut().find(|flight| *flight.id == *id);
        let call = flight.and_then(|flight| {
            flight.cancelled = true;
            flight.call.clone()
        });
        drop(under_way);
        if let Some(call) = call {
            call.cancel();
        }
    }
}

impl UnderWay {
    /// Finds a call by its number; `None` after the connection was closed.
    fn flight(&mut self, number: u64) -> Option<&mut Flight> {
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
        let mut under_way = self.connection.under_way();
        under_way.flight(self.number).is_none_or(|flight| flight.cancelled)
    }

    /// Records that the call was sent. Cancels it at once if the client cancelled it meanwhile.
    pub(crate) fn sent(&self, call: &Canceller) {
        let cancelled = {
            let mut under_way = self.connection.under_way();
            match under_way.flight(self.number) {
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
        let mut under_way = self.connection.under_way();
        let at = under_way.calls.iter().position(|flight| flight.number == self.number);
        let over = at.map(|at| under_way.calls.swap_remove(at));
        // An idle connection keeps no list.
        let list = under_way.calls.is_empty().then(|| std::mem::take(&mut under_way.calls));
        drop(under_way);
        drop((over, list));
    }
}

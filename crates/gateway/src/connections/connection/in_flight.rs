//! The calls of a client that are in flight, by the ids that it gave them.

use std::sync::Arc;

use stayput_upstream::Canceller;

use super::{Connection, UnderWay};

/// A call from the moment its id is taken.
pub(super) struct Flight {
    number: u64,
    /// The client's id as it was written.
    id: Arc<str>,
    /// Once it was sent.
    pub(super) call: Option<Canceller>,
    /// Taken back before it was.
    cancelled: bool,
}

impl Connection {
    /// Takes an id for a call that is about to be made. `None` if one with this id is in flight.
    pub(crate) fn begin(self: &Arc<Self>, id: &Arc<str>) -> Option<InFlight> {
        let mut under_way = self.under_way();
        if under_way.calls.iter().any(|flight| flight.id == *id) {
            return None;
        }
        under_way.flights += 1;
        let number = under_way.flights;
        // One call at a time needs no room for more.
        let few = under_way.calls.capacity() == 0;
        under_way.calls.reserve_exact(usize::from(few));
        under_way.calls.push(Flight { number, id: id.clone(), call: None, cancelled: false });
        Some(InFlight { connection: self.clone(), number })
    }

    /// The client takes a call back.
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
    /// A call by its number, unless the connection was closed meanwhile.
    fn flight(&mut self, number: u64) -> Option<&mut Flight> {
        self.calls.iter_mut().find(|flight| flight.number == number)
    }
}

/// A call in flight, for as long as this lives.
#[derive(Debug)]
pub(crate) struct InFlight {
    connection: Arc<Connection>,
    number: u64,
}

impl InFlight {
    /// Whether the client took it back.
    pub(crate) fn is_cancelled(&self) -> bool {
        let mut under_way = self.connection.under_way();
        under_way.flight(self.number).is_none_or(|flight| flight.cancelled)
    }

    /// It was sent. If the client took it back meanwhile, so is the call.
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
        // An idle connection has no list.
        let list = under_way.calls.is_empty().then(|| std::mem::take(&mut under_way.calls));
        drop(under_way);
        drop((over, list));
    }
}

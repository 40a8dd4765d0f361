//! The calls in flight on one link.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

use stayput_wire::IdBuf;
use tokio::time::Instant;

use super::{CallError, Declares, Flight};
use crate::Loss;

/// A table for more calls at once than this is not kept for the next ones.
const KEPT: usize = 64;

type Questions = Vec<(IdBuf, Option<u64>)>;

/// Which call is which. A call lives here, not in its caller's future.
#[derive(Debug, Default)]
#[repr(C)] // What every call asks lies together, in as few lines of the cache as can be.
pub(crate) struct Pending {
    calls: Calls,
    /// Questions of the server that were not answered yet, and the call they came with. In a box, because most
    /// links have none.
    asked: Option<Box<Questions>>,
    /// Set once, when the link is over. From then on no call comes in.
    closed: Option<Arc<Loss>>,
    /// When somebody looks for calls that took too long. Kept while calls come and go: with limits
    /// of an hour it is set once an hour, not once a call.
    armed: Option<Instant>,
    /// When the last call ended, be it that its caller was long gone.
    quiet: Option<Instant>,
}

impl Pending {
    /// Takes in a call. Says whether the timer has to be set earlier for it.
    pub(crate) fn add(&mut self, flight: Arc<Flight>) -> Result<bool, CallError> {
        if let Some(loss) = &self.closed {
            let delivery = crate::Delivery::NotSent;
            return Err(CallError::Lost { loss: loss.clone(), delivery });
        }
        let expires = flight.expires();
        let earlier = self.armed.is_none_or(|armed| expires < armed);
        if earlier {
            self.armed = Some(expires);
        }
        self.calls.insert(flight);
        Ok(earlier)
    }

    /// Takes out a call: it has its answer, or will have none.
    pub(crate) fn take(&mut self, number: u64) -> Option<Arc<Flight>> {
        let flight = self.calls.remove(number)?;
        if let Some(asked) = &mut self.asked {
            asked.retain(|(_, call)| *call != Some(number));
            self.asked.take_if(|asked| asked.is_empty());
        }
        if self.calls.len() == 0 {
            self.rest();
        }
        Some(flight)
    }

    /// Nothing is in flight any more.
    fn rest(&mut self) {
        self.quiet = Some(Instant::now());
        self.calls.rest();
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Arc<Flight>> {
        self.calls.get(number)
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Since when nothing is in flight; none if something is, or never was.
    pub(crate) fn quiet_since(&self) -> Option<Instant> {
        self.quiet.filter(|_| self.calls.len() == 0)
    }

    pub(crate) fn is_in_flight(&self, number: u64) -> bool {
        self.calls.get(number).is_some()
    }

    pub(crate) fn closed(&self) -> Option<&Arc<Loss>> {
        self.closed.as_ref()
    }

    /// Lets no call in any more. Says whether it was open.
    pub(crate) fn close(&mut self, loss: &Arc<Loss>) -> bool {
        let open = self.closed.is_none();
        if open {
            self.closed = Some(loss.clone());
        }
        open
    }

    /// Takes out all calls.
    pub(crate) fn drain(&mut self) -> Vec<Arc<Flight>> {
        self.asked = None;
        let all = std::mem::take(&mut self.calls).into_all();
        self.rest();
        all
    }

    /// When to look for calls that took too long.
    pub(crate) fn armed(&self) -> Option<Instant> {
        self.armed
    }

    /// Takes out the calls that took too long, and sets the timer for the next.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Arc<Flight>> {
        let late = self.numbers(|flight| flight.expires() <= now);
        let late = late.into_iter().filter_map(|number| self.take(number)).collect();
        self.armed = self.calls.all().map(|flight| flight.expires()).min();
        late
    }

    fn numbers(&self, which: impl Fn(&Flight) -> bool) -> Vec<u64> {
        self.calls.all().filter(|flight| which(flight)).map(|flight| flight.number).collect()
    }

    /// The only call in flight whose client said that it can answer this.
    pub(crate) fn able(&self, needed: Declares) -> Option<u64> {
        match self.numbers(|flight| flight.declares.includes(needed))[..] {
            [number] => Some(number),
            _ => None,
        }
    }

    /// The only call in flight.
    pub(crate) fn only(&self) -> Option<u64> {
        let mut all = self.calls.all();
        let first = all.next().map(|flight| flight.number);
        first.filter(|_| all.next().is_none())
    }

    /// Notes a question of the server.
    pub(crate) fn ask(&mut self, id: IdBuf, call: Option<u64>) {
        self.asked.get_or_insert_default().push((id, call));
    }

    /// Takes a question of the server out. Says with which call it came, or that it is unknown.
    pub(crate) fn answered(&mut self, id: &str) -> Option<Option<u64>> {
        let asked = self.asked.as_mut()?;
        let at = asked.iter().position(|(asked, _)| asked.as_str() == id)?;
        let (_, call) = asked.swap_remove(at);
        self.asked.take_if(|asked| asked.is_empty());
        Some(call)
    }
}

/// Calls by their numbers. The first has a place of its own: most links have one call at a time, and
/// then there is no table.
#[derive(Debug, Default)]
struct Calls {
    first: Option<Arc<Flight>>,
    others: Option<Box<Others>>,
}

type Others = HashMap<u64, Arc<Flight>, BuildHasherDefault<Spread>>;

impl Calls {
    fn insert(&mut self, flight: Arc<Flight>) {
        if self.first.is_none() {
            self.first = Some(flight);
        } else {
            self.others.get_or_insert_default().insert(flight.number, flight);
        }
    }

    fn get(&self, number: u64) -> Option<&Arc<Flight>> {
        let first = self.first.as_ref().filter(|flight| flight.number == number);
        first.or_else(|| self.others.as_ref()?.get(&number))
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Flight>> {
        let first = self.first.take_if(|flight| flight.number == number);
        first.or_else(|| self.others.as_mut()?.remove(&number))
    }

    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.as_ref().map_or(0, |it| it.len())
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Flight>> {
        self.first.iter().chain(self.others.iter().flat_map(|it| it.values()))
    }

    fn into_all(self) -> Vec<Arc<Flight>> {
        let others = self.others.into_iter().flat_map(|it| it.into_values());
        self.first.into_iter().chain(others).collect()
    }

    /// Lets go of a table that was for many.
    fn rest(&mut self) {
        self.others.take_if(|others| others.capacity() > KEPT);
    }
}

/// Spreads numbers. They are given out by this process, so nobody can choose them to fall together; a
/// server can only ask for some.
#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

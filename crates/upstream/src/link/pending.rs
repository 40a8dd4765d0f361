//! Calls in flight on one link.

use stayput_wire::IdBuf;
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

use super::{CallError, ClientCapabilities, PendingCall};
use crate::Loss;

/// A table that held more calls than this is freed when it becomes empty.
const MAX_KEPT_CAPACITY: usize = 64;

/// Time for which the server may still work on a call that was given up.
const ABANDONED_CALL_TTL: Duration = Duration::from_secs(60);

type PendingServerRequests = Vec<PendingServerRequest>;

/// Calls of a shared link that were given up, and until when the server may still work on them.
type AbandonedCalls = Vec<(u64, Instant)>;

/// Unanswered request of the server.
#[derive(Debug)]
struct PendingServerRequest {
    number: u64,
    id: IdBuf,
    /// Call during which it came.
    call: Option<u64>,
}

/// Table of calls by id. A call is stored here, not in its caller's future.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    calls: CallTable,
    /// Unanswered requests of the server. Boxed, because most links have none.
    asked: Option<Box<PendingServerRequests>>,
    /// Number of requests of the server so far.
    questions: u64,
    /// Calls that were given up. Boxed, because most links have none.
    left: Option<Box<AbandonedCalls>>,
    /// Loss that ended the link. From then on no call is added.
    closed: Option<Arc<Loss>>,
    /// Time of the next check for expired calls. It stays while calls come and go: with a timeout of an hour
    /// it is set once an hour, not once per call.
    armed: Option<Instant>,
    /// End of the last call, even if its caller had dropped it long before.
    quiet: Option<Instant>,
}

impl Pending {
    /// Adds a call. Returns whether the timer has to be moved to an earlier time.
    pub(crate) fn add(&mut self, pending_call: Arc<PendingCall>) -> Result<bool, CallError> {
        if let Some(loss) = &self.closed {
            let delivery = crate::Delivery::NotSent;
            return Err(CallError::Lost { loss: loss.clone(), delivery });
        }
        let expires = pending_call.expires();
        let earlier = self.armed.is_none_or(|armed| expires < armed);
        if earlier {
            self.armed = Some(expires);
        }
        self.calls.insert(pending_call);
        Ok(earlier)
    }

    /// Removes a call that has an answer or will get none.
    pub(crate) fn take(&mut self, number: u64) -> Option<Arc<PendingCall>> {
        let pending_call = self.calls.remove(number)?;
        if let Some(asked) = &mut self.asked {
            asked.retain(|asked| asked.call != Some(number));
            self.asked.take_if(|asked| asked.is_empty());
        }
        if self.calls.len() == 0 {
            self.rest();
        }
        Some(pending_call)
    }

    /// Removes a call that was given up. With `note`, as on a shared link, records that the server may still
    /// work on it and send messages about it.
    pub(crate) fn give_up(&mut self, number: u64, note: bool) -> Option<Arc<PendingCall>> {
        let pending_call = self.take(number)?;
        if note && !pending_call.listens() {
            let until = Instant::now() + ABANDONED_CALL_TTL;
            self.left.get_or_insert_default().push((number, until));
        }
        Some(pending_call)
    }

    /// The server does not work on this call any more, or never did.
    pub(crate) fn settle(&mut self, number: u64) {
        if let Some(left) = &mut self.left {
            left.retain(|(known, _)| *known != number);
            self.left.take_if(|left| left.is_empty());
        }
    }

    /// Notes the time at which no call is in flight.
    fn rest(&mut self) {
        self.quiet = Some(Instant::now());
        self.calls.rest();
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Arc<PendingCall>> {
        self.calls.get(number)
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Start of the time without calls in flight. `None` if there is one, or never was.
    pub(crate) fn quiet_since(&self) -> Option<Instant> {
        self.quiet.filter(|_| self.calls.len() == 0)
    }

    pub(crate) fn is_in_flight(&self, number: u64) -> bool {
        self.calls.get(number).is_some()
    }

    pub(crate) fn closed(&self) -> Option<&Arc<Loss>> {
        self.closed.as_ref()
    }

    /// Refuses further calls. Returns whether the link was still open.
    pub(crate) fn close(&mut self, loss: &Arc<Loss>) -> bool {
        let open = self.closed.is_none();
        if open {
            self.closed = Some(loss.clone());
        }
        open
    }

    /// Removes all calls.
    pub(crate) fn drain(&mut self) -> Vec<Arc<PendingCall>> {
        self.asked = None;
        let all = std::mem::take(&mut self.calls).into_all();
        self.rest();
        all
    }

    /// Time of the next check for expired calls.
    pub(crate) fn armed(&self) -> Option<Instant> {
        self.armed
    }

    /// Removes the expired calls and sets the timer for the next one.
    pub(crate) fn expire(&mut self, now: Instant, shared: bool) -> Vec<Arc<PendingCall>> {
        let late = self.numbers(|pending_call| pending_call.expires() <= now);
        let late = late.into_iter().filter_map(|number| self.give_up(number, shared)).collect();
        self.armed = self.calls.all().map(|pending_call| pending_call.expires()).min();
        late
    }

    fn numbers(&self, which: impl Fn(&PendingCall) -> bool) -> Vec<u64> {
        self.calls
            .all()
            .filter(|pending_call| which(pending_call))
            .map(|pending_call| pending_call.number)
            .collect()
    }

    /// Returns the only call in flight whose client can answer such a request.
    pub(crate) fn only_call_that_can_answer(&self, needed: ClientCapabilities) -> Option<u64> {
        match self.numbers(|pending_call| pending_call.capabilities.includes(needed))[..] {
            [number] => Some(number),
            _ => None,
        }
    }

    /// Returns the only call in flight.
    pub(crate) fn only(&self) -> Option<u64> {
        let mut all = self.calls.all();
        let first = all.next().map(|pending_call| pending_call.number);
        first.filter(|_| all.next().is_none())
    }

    /// Returns the only call in flight that is not a subscription.
    pub(crate) fn only_call(&self) -> Option<u64> {
        let mut all = self.calls.all().filter(|pending_call| !pending_call.listens());
        let first = all.next().map(|pending_call| pending_call.number);
        first.filter(|_| all.next().is_none())
    }

    /// Returns the only call that the server can be working on: the only one in flight, if none was given up lately.
    pub(crate) fn only_possible_call(&mut self) -> Option<u64> {
        let now = Instant::now();
        if let Some(left) = &mut self.left {
            left.retain(|(_, until)| *until > now);
            self.left.take_if(|left| left.is_empty());
        }
        self.only_call().filter(|_| self.left.is_none())
    }

    /// Records a request of the server and returns its number.
    pub(crate) fn ask(&mut self, id: IdBuf, call: Option<u64>) -> u64 {
        self.questions += 1;
        let number = self.questions;
        self.asked.get_or_insert_default().push(PendingServerRequest { number, id, call });
        number
    }

    /// Removes an answered request. Returns whether it was still open.
    pub(crate) fn answered(&mut self, number: u64) -> bool {
        self.take_question(|asked| asked.number == number).is_some()
    }

    /// Removes a request that the server cancelled. Returns the call it came with, or `None` if the request
    /// is unknown.
    pub(crate) fn withdrawn(&mut self, id: &str) -> Option<Option<u64>> {
        self.take_question(|asked| asked.id.as_str() == id).map(|asked| asked.call)
    }

    fn take_question(
        &mut self,
        which: impl Fn(&PendingServerRequest) -> bool,
    ) -> Option<PendingServerRequest> {
        let asked = self.asked.as_mut()?;
        let at = asked.iter().position(which)?;
        let question = asked.remove(at);
        self.asked.take_if(|asked| asked.is_empty());
        Some(question)
    }
}

/// Calls by id. The first one is stored inline: most links have one call at a time and need no map.
#[derive(Debug, Default)]
struct CallTable {
    first: Option<Arc<PendingCall>>,
    others: Option<Box<CallMap>>,
}

type CallMap = HashMap<u64, Arc<PendingCall>, BuildHasherDefault<IdHasher>>;

impl CallTable {
    fn insert(&mut self, pending_call: Arc<PendingCall>) {
        if self.first.is_none() {
            self.first = Some(pending_call);
        } else {
            self.others.get_or_insert_default().insert(pending_call.number, pending_call);
        }
    }

    fn get(&self, number: u64) -> Option<&Arc<PendingCall>> {
        let first = self.first.as_ref().filter(|pending_call| pending_call.number == number);
        first.or_else(|| self.others.as_ref()?.get(&number))
    }

    fn remove(&mut self, number: u64) -> Option<Arc<PendingCall>> {
        let first = self.first.take_if(|pending_call| pending_call.number == number);
        first.or_else(|| self.others.as_mut()?.remove(&number))
    }

    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.as_ref().map_or(0, |it| it.len())
    }

    fn all(&self) -> impl Iterator<Item = &Arc<PendingCall>> {
        self.first.iter().chain(self.others.iter().flat_map(|it| it.values()))
    }

    fn into_all(self) -> Vec<Arc<PendingCall>> {
        let others = self.others.into_iter().flat_map(|it| it.into_values());
        self.first.into_iter().chain(others).collect()
    }

    /// Frees a map that has grown large.
    fn rest(&mut self) {
        self.others.take_if(|others| others.capacity() > MAX_KEPT_CAPACITY);
    }
}

/// Hasher for ids. This process assigns the ids, so that an attacker cannot choose colliding ones; a server
/// can only look them up.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
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

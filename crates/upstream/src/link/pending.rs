//! The calls in flight on one link.

use std::{collections::HashMap, sync::Arc, time::Duration};

use stayput_wire::IdBuf;
use tokio::{task::AbortHandle, time::Instant};

use super::{CallError, Declares, Inbox};
use crate::Loss;

/// Which call is which. A call lives here, not in its caller's future.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    calls: HashMap<u64, Entry>,
    /// Set once, when the link is over. From then on no call comes in.
    closed: Option<Arc<Loss>>,
    /// When somebody looks for calls that took too long. Kept while calls come and go: with limits
    /// of an hour it is set once an hour, not once a call.
    armed: Option<Instant>,
    /// Questions of the server that were not answered yet, and the call they came with.
    asked: Vec<(IdBuf, Option<u64>)>,
    /// When the last call ended, be it that its caller was long gone.
    quiet: Option<Instant>,
}

/// One call in flight.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) inbox: Arc<Inbox>,
    /// The id under which the answer goes back; none if the caller gave none.
    pub(crate) id: Option<IdBuf>,
    /// The caller's progress token, as it was written.
    pub(crate) token: Option<Box<str>>,
    pub(crate) declares: Declares,
    /// The time without progress after which it fails.
    pub(crate) limit: Duration,
    pub(crate) expires: Instant,
    /// Reads the answer, where each call has a stream of its own.
    pub(crate) driver: Option<AbortHandle>,
    /// A handshake is never cancelled on the wire.
    pub(crate) silent: bool,
}

impl Pending {
    /// Takes in a call. Says whether the timer has to be set earlier for it.
    pub(crate) fn add(&mut self, number: u64, entry: Entry) -> Result<bool, CallError> {
        if let Some(loss) = &self.closed {
            let delivery = crate::Delivery::NotSent;
            return Err(CallError::Lost { loss: loss.clone(), delivery });
        }
        let earlier = self.armed.is_none_or(|armed| entry.expires < armed);
        if earlier {
            self.armed = Some(entry.expires);
        }
        self.calls.insert(number, entry);
        Ok(earlier)
    }

    /// Takes out a call: it has its answer, or will have none.
    pub(crate) fn take(&mut self, number: u64) -> Option<Entry> {
        let entry = self.calls.remove(&number);
        if entry.is_some() && !self.asked.is_empty() {
            self.asked.retain(|(_, call)| *call != Some(number));
        }
        if entry.is_some() && self.calls.is_empty() {
            self.quiet = Some(Instant::now());
        }
        entry
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Entry> {
        self.calls.get_mut(&number)
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Since when nothing is in flight; none if something is, or never was.
    pub(crate) fn quiet_since(&self) -> Option<Instant> {
        self.quiet.filter(|_| self.calls.is_empty())
    }

    pub(crate) fn is_in_flight(&self, number: u64) -> bool {
        self.calls.contains_key(&number)
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
    pub(crate) fn drain(&mut self) -> Vec<(u64, Entry)> {
        self.asked.clear();
        self.quiet = Some(Instant::now());
        self.calls.drain().collect()
    }

    /// When to look for calls that took too long.
    pub(crate) fn armed(&self) -> Option<Instant> {
        self.armed
    }

    /// Takes out the calls that took too long, and sets the timer for the next.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<(u64, Entry)> {
        let late: Vec<u64> = self.numbers(|entry| entry.expires <= now);
        let late = late.into_iter().filter_map(|n| Some((n, self.take(n)?))).collect();
        self.armed = self.calls.values().map(|entry| entry.expires).min();
        late
    }

    fn numbers(&self, which: impl Fn(&Entry) -> bool) -> Vec<u64> {
        self.calls.iter().filter(|(_, entry)| which(entry)).map(|(number, _)| *number).collect()
    }

    /// The only call in flight whose client said that it can answer this.
    pub(crate) fn able(&self, needed: Declares) -> Option<u64> {
        match self.numbers(|entry| entry.declares.includes(needed))[..] {
            [number] => Some(number),
            _ => None,
        }
    }

    /// The only call in flight.
    pub(crate) fn only(&self) -> Option<u64> {
        let mut numbers = self.calls.keys();
        let first = numbers.next().copied();
        first.filter(|_| numbers.next().is_none())
    }

    /// Notes a question of the server.
    pub(crate) fn ask(&mut self, id: IdBuf, call: Option<u64>) {
        self.asked.push((id, call));
    }

    /// Takes a question of the server out. Says with which call it came, or that it is unknown.
    pub(crate) fn answered(&mut self, id: &str) -> Option<Option<u64>> {
        let at = self.asked.iter().position(|(asked, _)| asked.as_str() == id)?;
        Some(self.asked.swap_remove(at).1)
    }
}

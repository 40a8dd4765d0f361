//! What is on its way into a child's input.

use std::{collections::VecDeque, io, sync::Arc};

use bytes::{Buf as _, Bytes};
use tokio::net::unix::pipe::Sender;

/// Beyond this many bytes callers wait.
const FULL: usize = 4 << 20;

/// Beyond this many bytes what nobody waits for is dropped: a child that asks and asks, and does not
/// read what it is answered, must not cost more than that.
const TOO_FULL: usize = 4 * FULL;

/// Writes whole messages one after the other, whoever sends them and whoever is cancelled meanwhile.
pub(super) struct Outbox {
    /// The child's input; none once it is closed.
    pipe: Option<Arc<Sender>>,
    queue: VecDeque<Item>,
    bytes: usize,
}

struct Item {
    number: Option<u64>,
    rest: Bytes,
    /// Some of it is written: from here on it must be written to its end.
    begun: bool,
}

impl Outbox {
    pub(super) fn new(pipe: Sender) -> Self {
        Self { pipe: Some(Arc::new(pipe)), queue: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes > FULL
    }

    /// Writes what can be written at once. Says whether something is left for the task.
    pub(super) fn send(&mut self, number: Option<u64>, text: Bytes) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        if number.is_none() && self.bytes > TOO_FULL {
            return false;
        }
        let mut item = Item { number, rest: text, begun: false };
        // Not through the readiness that tokio remembers: a pipe nearly always takes a message, and one
        // that does not says so.
        let write = |rest: &[u8]| rustix::io::write(pipe, rest).map_err(io::Error::from);
        if self.queue.is_empty() && item.write(write).is_ok_and(|()| item.rest.is_empty()) {
            return false;
        }
        self.bytes += item.rest.len();
        self.queue.push_back(item);
        true
    }

    /// What has to be writable before it makes sense to go on, if anything waits.
    pub(super) fn waits_for(&self) -> Option<Arc<Sender>> {
        self.pipe.clone().filter(|_| !self.queue.is_empty())
    }

    /// Writes on. An error means that the child does not read any more.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(pipe) = self.pipe.clone() else { return Ok(()) };
        while let Some(item) = self.queue.front_mut() {
            let before = item.rest.len();
            let written = item.write(|rest| pipe.try_write(rest));
            self.bytes -= before - item.rest.len();
            written?;
            if !item.rest.is_empty() {
                return Ok(());
            }
            self.queue.pop_front();
        }
        Ok(())
    }

    /// Takes back a message of which nothing was written. Says whether that was so.
    pub(super) fn withdraw(&mut self, number: u64) -> bool {
        let at = self.queue.iter().position(|item| item.number == Some(number) && !item.begun);
        let item = at.and_then(|at| self.queue.remove(at));
        self.bytes -= item.as_ref().map_or(0, |item| item.rest.len());
        item.is_some()
    }

    /// Closes the child's input. What was not begun is not sent: these are the calls.
    pub(super) fn close(&mut self) -> Vec<u64> {
        self.pipe = None;
        self.bytes = 0;
        let left = self.queue.drain(..);
        left.filter(|item| !item.begun).filter_map(|item| item.number).collect()
    }
}

impl Item {
    /// Writes what the pipe takes. The rest stays.
    fn write(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        while !self.rest.is_empty() {
            match write(&self.rest) {
                Ok(written) => {
                    self.begun |= written > 0;
                    self.rest.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

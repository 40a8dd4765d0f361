//! Messages on their way into a child's input.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::{Buf as _, Bytes};
use tokio::net::unix::pipe::Sender;

/// Number of waiting bytes above which callers wait.
const WAIT_ABOVE: usize = 4 << 20;

/// Number of waiting bytes above which messages without a waiting caller are dropped: a child that keeps
/// sending requests and does not read the responses must not cost more memory than that.
const DROP_ABOVE: usize = 4 * WAIT_ABOVE;

/// Maximum number of messages in one write.
const MAX_MESSAGES_PER_WRITE: usize = 64;

/// Writes whole messages one after the other, whichever task sends them and whichever caller is cancelled
/// meanwhile.
pub(super) struct Outbox {
    /// Input of the child; `None` once it is closed.
    pipe: Option<Arc<Sender>>,
    queue: VecDeque<QueuedMessage>,
    load: QueuedBytes,
    /// Whether messages are held back, so that they go out together with those that follow.
    corked: bool,
}

struct QueuedMessage {
    number: Option<u64>,
    rest: Bytes,
    /// Whether some of it is written: then it must be written to its end.
    begun: bool,
}

impl Outbox {
    pub(super) fn new(pipe: Sender) -> Self {
        let (pipe, queue, load) = (Some(Arc::new(pipe)), VecDeque::new(), QueuedBytes::default());
        Self { pipe, queue, load, corked: false }
    }

    /// Returns a counter of the waiting bytes, for tasks that do not hold the outbox.
    pub(super) fn load(&self) -> QueuedBytes {
        self.load.clone()
    }

    /// Writes as much as the pipe takes at once. Returns whether the task has to write the rest.
    pub(super) fn send(&mut self, number: Option<u64>, text: Bytes) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        if number.is_none() && self.load.bytes() > DROP_ABOVE {
            return false;
        }
        let mut item = QueuedMessage { number, rest: text, begun: false };
        // Writes without the readiness that tokio remembers: a pipe nearly always takes a message, and one that
        // does not returns an error.
        let write = |rest: &[u8]| rustix::io::write(pipe, rest).map_err(io::Error::from);
        let now = !self.corked && self.queue.is_empty();
        if now && item.write(write).is_ok_and(|()| item.rest.is_empty()) {
            return false;
        }
        self.load.add(item.rest.len());
        self.queue.push_back(item);
        // The task that corked the outbox returns to it without being woken.
        !self.corked
    }

    /// Holds messages back until the task comes back and uncorks the outbox. Several callers got their answers
    /// and most of them will call again at once: their messages go out in one write. Written one by one, each
    /// message would wake the child and be read alone.
    pub(super) fn cork(&mut self) {
        self.corked = true;
    }

    /// Writes the messages that were held back. Returns whether there were any.
    pub(super) fn uncork(&mut self) -> io::Result<bool> {
        let some = std::mem::take(&mut self.corked) && !self.queue.is_empty();
        if some {
            self.flush()?;
        }
        Ok(some)
    }

    /// Returns the pipe that has to become writable, if any message waits.
    pub(super) fn waits_for(&self) -> Option<Arc<Sender>> {
        self.pipe.clone().filter(|_| !self.queue.is_empty())
    }

    /// Writes the waiting messages. An error means that the child does not read any more.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(pipe) = self.pipe.clone() else { return Ok(()) };
        while !self.queue.is_empty() {
            let mut parts = [IoSlice::new(&[]); MAX_MESSAGES_PER_WRITE];
            let count = self.queue.len().min(MAX_MESSAGES_PER_WRITE);
            for (part, item) in parts.iter_mut().zip(&self.queue) {
                *part = IoSlice::new(&item.rest);
            }
            match pipe.try_write_vectored(&parts[..count]) {
                Ok(written) => self.written(written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes written bytes from the queue.
    fn written(&mut self, mut bytes: usize) {
        self.load.remove(bytes);
        while let Some(item) = self.queue.front_mut() {
            let part = bytes.min(item.rest.len());
            item.rest.advance(part);
            item.begun |= part > 0;
            bytes -= part;
            if !item.rest.is_empty() {
                return;
            }
            self.queue.pop_front();
        }
    }

    /// Removes a message of which nothing was written. Returns whether there was one.
    pub(super) fn withdraw(&mut self, number: u64) -> bool {
        let at = self.queue.iter().position(|item| item.number == Some(number) && !item.begun);
        let item = at.and_then(|at| self.queue.remove(at));
        self.load.remove(item.as_ref().map_or(0, |item| item.rest.len()));
        item.is_some()
    }

    /// Closes the child's input. Returns the calls of which nothing was written; they are not sent.
    pub(super) fn close(&mut self) -> Vec<u64> {
        self.pipe = None;
        self.load.remove(self.load.bytes());
        let left = self.queue.drain(..);
        left.filter(|item| !item.begun).filter_map(|item| item.number).collect()
    }
}

/// Number of bytes that wait for the child. Only the holder of the outbox changes it; every caller reads it
/// before sending and needs no lock for that.
#[derive(Clone, Debug, Default)]
pub(super) struct QueuedBytes(Arc<AtomicUsize>);

impl QueuedBytes {
    pub(super) fn is_full(&self) -> bool {
        self.bytes() > WAIT_ABOVE
    }

    fn bytes(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Release);
    }

    fn remove(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Release);
    }
}

impl QueuedMessage {
    /// Writes as much as the pipe takes. The rest stays.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u64) -> (Option<u64>, Bytes) {
        (Some(number), Bytes::from(format!("{number}\n")))
    }

    #[tokio::test]
    async fn corked_messages_go_out_in_order_and_in_one_write() {
        let (sender, receiver) = tokio::net::unix::pipe::pipe().unwrap();
        let mut outbox = Outbox::new(sender);
        let read = || {
            let mut said = [0; 99];
            let length = rustix::io::read(&receiver, &mut said).unwrap_or(0);
            String::from_utf8_lossy(&said[..length]).into_owned()
        };
        outbox.cork();
        for number in 1..=3 {
            let (number, text) = message(number);
            assert!(!outbox.send(number, text), "nobody has to be woken for it");
        }
        assert_eq!(read(), "", "it waits");
        assert!(outbox.withdraw(2), "nothing of it was written");
        outbox.waits_for().unwrap().writable().await.unwrap();
        assert!(outbox.uncork().unwrap());
        assert_eq!((read().as_str(), outbox.load.bytes()), ("1\n3\n", 0));

        let (number, text) = message(4);
        assert!(!outbox.send(number, text));
        assert_eq!(read(), "4\n", "without a cork it goes at once");
        assert!(!outbox.uncork().unwrap());

        outbox.cork();
        let (number, text) = message(5);
        outbox.send(number, text);
        assert_eq!(outbox.close(), [5], "of what is told as not sent nothing was");
        assert_eq!(read(), "");
    }
}

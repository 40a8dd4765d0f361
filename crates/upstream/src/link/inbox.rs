//! What came for one call and was not read yet.

use std::{
    collections::VecDeque,
    sync::Mutex,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;

use super::{Answer, Asked, CallError};
use crate::lock::lock;

/// The most bytes that wait for one reader.
pub(crate) const QUEUE_LIMIT: usize = 4 << 20;

/// What comes for a call, in the order in which the server sent it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Incoming {
    /// The server tells something: a whole message, with the progress token of the caller.
    Notification(Bytes),
    /// The server asks something.
    Request(Asked),
    /// How the call ended. Nothing comes after it.
    Answer(Result<Answer, CallError>),
}

/// What kind of notification it is, for when there is too much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// The latest one says all.
    Progress,
    /// Can be done without.
    Log,
    /// Must not get lost.
    Full,
}

/// The reader does not read, and more than [`QUEUE_LIMIT`] waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

/// The queue of one call, or of one listener. It costs nothing until something waits in it.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Worth, Incoming)>,
    bytes: usize,
    /// The end stays outside the queue: most calls have nothing else.
    end: Option<Result<Answer, CallError>>,
    ended: bool,
    waker: Option<Waker>,
    dropped: u64,
}

impl Inbox {
    /// Lets a notification wait for the reader.
    pub(crate) fn notify(&self, worth: Worth, text: Bytes) -> Result<(), Overflow> {
        let waker = {
            let mut queue = lock(&self.0);
            if queue.ended {
                return Ok(());
            }
            if !queue.make_room(worth, text.len()) {
                if worth == Worth::Log {
                    queue.dropped += 1;
                    return Ok(());
                }
                return Err(Overflow);
            }
            queue.bytes += text.len();
            queue.waiting.push_back((worth, Incoming::Notification(text)));
            queue.waker.take()
        };
        wake(waker);
        Ok(())
    }

    /// Lets a question of the server wait for the reader.
    pub(crate) fn ask(&self, asked: Asked) -> Result<(), Overflow> {
        let waker = {
            let mut queue = lock(&self.0);
            if queue.ended {
                // Outside the lock it is refused, as everything that nobody answers.
                drop(queue);
                drop(asked);
                return Ok(());
            }
            if !queue.make_room(Worth::Full, asked.text().len()) {
                return Err(Overflow);
            }
            queue.bytes += asked.text().len();
            queue.waiting.push_back((Worth::Full, Incoming::Request(asked)));
            queue.waker.take()
        };
        wake(waker);
        Ok(())
    }

    /// The end of the call. Only the first one counts.
    pub(crate) fn end(&self, end: Result<Answer, CallError>) {
        let waker = {
            let mut queue = lock(&self.0);
            if queue.ended {
                return;
            }
            queue.ended = true;
            queue.end = Some(end);
            queue.waker.take()
        };
        wake(waker);
    }

    /// Whether the end is known, read or not.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.0).ended
    }

    /// Nobody reads any more. What waits is dropped, outside the lock: questions are refused by it.
    pub(crate) fn abandon(&self) {
        let waiting = {
            let mut queue = lock(&self.0);
            queue.ended = true;
            queue.waker = None;
            queue.bytes = 0;
            std::mem::take(&mut queue.waiting)
        };
        drop(waiting);
    }

    /// How many log messages were dropped because nobody read.
    pub(crate) fn dropped(&self) -> u64 {
        lock(&self.0).dropped
    }

    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Incoming>> {
        let mut queue = lock(&self.0);
        if let Some((_, incoming)) = queue.waiting.pop_front() {
            queue.bytes -= incoming.size();
            return Poll::Ready(Some(incoming));
        }
        if let Some(end) = queue.end.take() {
            return Poll::Ready(Some(Incoming::Answer(end)));
        }
        if queue.ended {
            return Poll::Ready(None);
        }
        if !queue.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            queue.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Queue {
    /// Says whether there is room. If there is not, some is made: progress goes that newer progress
    /// makes pointless, and then, for what is worth more, all logs.
    fn make_room(&mut self, worth: Worth, size: usize) -> bool {
        if !self.fits(size) && worth != Worth::Log {
            let newest = self.waiting.iter().rposition(|(worth, _)| *worth == Worth::Progress);
            let newest = newest.filter(|_| worth != Worth::Progress);
            self.drop_all(Worth::Progress, newest);
            if !self.fits(size) {
                self.dropped += self.drop_all(Worth::Log, None);
            }
        }
        self.fits(size)
    }

    fn fits(&self, size: usize) -> bool {
        self.bytes + size <= QUEUE_LIMIT
    }

    /// Drops everything of this worth but for the one at `spared`. Says how many that were.
    fn drop_all(&mut self, dropped: Worth, spared: Option<usize>) -> u64 {
        let (mut at, mut gone) = (0, 0);
        self.waiting.retain(|(worth, incoming)| {
            let keep = *worth != dropped || spared == Some(at);
            at += 1;
            if !keep {
                self.bytes -= incoming.size();
                gone += 1;
            }
            keep
        });
        gone
    }
}

impl Incoming {
    fn size(&self) -> usize {
        match self {
            Self::Notification(text) => text.len(),
            Self::Request(asked) => asked.text().len(),
            Self::Answer(_) => 0,
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

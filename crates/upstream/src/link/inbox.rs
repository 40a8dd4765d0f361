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

/// What came and was not read.
type Waiting = VecDeque<(Worth, Incoming)>;

#[derive(Debug, Default)]
struct Queue {
    waiting: Waiting,
    bytes: usize,
    /// How much of it is progress.
    progress: usize,
    /// The end stays outside the queue: most calls have nothing else.
    end: Option<Result<Answer, CallError>>,
    ended: bool,
    waker: Option<Waker>,
    dropped: u64,
    /// Whether anything ever came: then the server was at work.
    begun: bool,
}

impl Inbox {
    /// Lets a notification wait for the reader.
    pub(crate) fn notify(&self, worth: Worth, text: Bytes) -> Result<(), Overflow> {
        let waker = {
            let mut queue = lock(&self.0);
            if queue.ended {
                return Ok(());
            }
            queue.begun = true;
            if !queue.make_room(worth, text.len()) {
                if worth == Worth::Log {
                    queue.dropped += 1;
                    return Ok(());
                }
                return Err(Overflow);
            }
            queue.bytes += text.len();
            queue.progress += usize::from(worth == Worth::Progress);
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
            queue.begun = true;
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

    /// Wakes whoever waits, without anything that came. Says whether anybody does.
    pub(crate) fn nudge(&self) -> bool {
        let waker = lock(&self.0).waker.take();
        let some = waker.is_some();
        wake(waker);
        some
    }

    /// Nobody waits any more.
    pub(crate) fn unfollow(&self) {
        lock(&self.0).waker = None;
    }

    /// Whether anything came before the end.
    pub(crate) fn has_begun(&self) -> bool {
        lock(&self.0).begun
    }

    /// Nobody reads any more. Says whether the end was known, read or not, and what waited: dropped,
    /// questions are refused.
    pub(crate) fn abandon(&self) -> (bool, Waiting) {
        let mut queue = lock(&self.0);
        queue.waker = None;
        (queue.bytes, queue.progress) = (0, 0);
        (std::mem::replace(&mut queue.ended, true), std::mem::take(&mut queue.waiting))
    }

    /// How many log messages were dropped because nobody read.
    pub(crate) fn dropped(&self) -> u64 {
        lock(&self.0).dropped
    }

    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Incoming>> {
        let mut queue = lock(&self.0);
        if let Some((worth, incoming)) = queue.waiting.pop_front() {
            queue.bytes -= incoming.size();
            queue.progress -= usize::from(worth == Worth::Progress);
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
    /// Says whether there is room. If there is none, progress goes that newer progress makes pointless,
    /// and then logs, the oldest first, unless it is for one more of them.
    fn make_room(&mut self, worth: Worth, size: usize) -> bool {
        if self.bytes + size <= QUEUE_LIMIT {
            return true;
        }
        if worth == Worth::Log && self.progress <= 1 {
            // There is nothing to look for, and a flood of logs would have all of it looked through for
            // each of them.
            return false;
        }
        let latest = match worth {
            Worth::Progress => None,
            _ => self.waiting.iter().rposition(|(worth, _)| *worth == Worth::Progress),
        };
        let (mut at, mut bytes, mut logs) = (0, self.bytes, 0);
        self.waiting.retain(|(kind, incoming)| {
            let newest = latest == Some(at);
            at += 1;
            let log = *kind == Worth::Log && worth != Worth::Log && bytes + size > QUEUE_LIMIT;
            let keep = !log && (*kind != Worth::Progress || newest);
            if !keep {
                bytes -= incoming.size();
                logs += u64::from(log);
            }
            keep
        });
        self.bytes = bytes;
        self.progress = usize::from(latest.is_some());
        self.dropped += logs;
        bytes + size <= QUEUE_LIMIT
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

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: usize = QUEUE_LIMIT / 2;

    fn notify(inbox: &Inbox, worth: Worth, size: usize) -> Result<(), Overflow> {
        inbox.notify(worth, Bytes::from(vec![b'x'; size]))
    }

    fn waiting(inbox: &Inbox) -> Vec<(Worth, usize)> {
        lock(&inbox.0).waiting.iter().map(|(worth, one)| (*worth, one.size())).collect()
    }

    #[test]
    fn what_can_be_done_without_makes_room() {
        let inbox = Inbox::default();
        for (worth, size) in
            [(Worth::Progress, 1), (Worth::Log, HALF), (Worth::Progress, 2), (Worth::Log, HALF - 3)]
        {
            assert_eq!(notify(&inbox, worth, size), Ok(()));
        }
        // No log makes room for another one.
        assert_eq!(notify(&inbox, Worth::Log, 9), Ok(()));
        assert_eq!((inbox.dropped(), waiting(&inbox).len()), (1, 3));
        assert_eq!(notify(&inbox, Worth::Full, HALF), Ok(()));
        let kept = [(Worth::Progress, 2), (Worth::Log, HALF - 3), (Worth::Full, HALF)];
        assert_eq!(waiting(&inbox), kept);
        assert_eq!(inbox.dropped(), 2);
        assert_eq!(notify(&inbox, Worth::Progress, 4), Ok(()));
        assert_eq!(waiting(&inbox), [(Worth::Full, HALF), (Worth::Progress, 4)]);
        // What must not get lost is not dropped for anything.
        assert_eq!(notify(&inbox, Worth::Full, HALF), Err(Overflow));
        assert_eq!(waiting(&inbox), [(Worth::Full, HALF), (Worth::Progress, 4)]);
    }
}

//! Queue of unread messages of one call.

use bytes::Bytes;
use stayput_sync::Mutex;
use std::{
    collections::VecDeque,
    task::{Context, Poll, Waker},
};

use super::{Answer, CallError, ServerRequest};

/// Most bytes that wait for one reader.
pub(crate) const QUEUE_LIMIT: usize = 4 << 20;

/// Event of a call, in the order in which the server sent them.
#[derive(Debug)]
#[non_exhaustive]
pub enum Incoming {
    /// Notification: a whole message, with the progress token of the caller.
    Notification(Bytes),
    /// Request of the server.
    Request(ServerRequest),
    /// End of the call. Nothing follows.
    Answer(Result<Answer, CallError>),
}

/// Priority of a message when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessagePriority {
    /// Only the latest one counts.
    Progress,
    /// May be dropped.
    Log,
    /// Must not be dropped.
    Full,
}

/// The reader does not read, and its queue is above [`QUEUE_LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

/// Queue of one call or one listener. It allocates on the first message that waits.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<Queue>);

/// Messages that were not read yet.
type InboxQueue = VecDeque<(MessagePriority, Incoming)>;

#[derive(Debug, Default)]
struct Queue {
    waiting: InboxQueue,
    bytes: usize,
    /// Number of progress notifications in the queue.
    progress: usize,
    /// Stored outside the queue: most calls get nothing else.
    end: Option<Result<Answer, CallError>>,
    ended: bool,
    waker: Option<Waker>,
    dropped: u64,
    /// Whether any message came, which means that the server was working on the call.
    begun: bool,
}

impl Inbox {
    /// Queues a notification.
    pub(crate) fn notify(&self, worth: MessagePriority, text: Bytes) -> Result<(), Overflow> {
        let waker = {
            let mut queue = self.0.lock();
            if queue.ended {
                return Ok(());
            }
            queue.begun = true;
            if !queue.make_room(worth, text.len()) {
                if worth == MessagePriority::Log {
                    queue.dropped += 1;
                    return Ok(());
                }
                return Err(Overflow);
            }
            queue.bytes += text.len();
            queue.progress += usize::from(worth == MessagePriority::Progress);
            queue.waiting.push_back((worth, Incoming::Notification(text)));
            queue.waker.take()
        };
        wake(waker);
        Ok(())
    }

    /// Queues a request of the server.
    pub(crate) fn ask(&self, asked: ServerRequest) -> Result<(), Overflow> {
        let waker = {
            let mut queue = self.0.lock();
            if queue.ended {
                // Unlock, then drop the request, which refuses it.
                drop(queue);
                drop(asked);
                return Ok(());
            }
            queue.begun = true;
            if !queue.make_room(MessagePriority::Full, asked.text().len()) {
                return Err(Overflow);
            }
            queue.bytes += asked.text().len();
            queue.waiting.push_back((MessagePriority::Full, Incoming::Request(asked)));
            queue.waker.take()
        };
        wake(waker);
        Ok(())
    }

    /// Sets the end of the call. Only the first one counts.
    pub(crate) fn end(&self, end: Result<Answer, CallError>) {
        let waker = {
            let mut queue = self.0.lock();
            if queue.ended {
                return;
            }
            queue.ended = true;
            queue.end = Some(end);
            queue.waker.take()
        };
        wake(waker);
    }

    /// Wakes the reader without a message. Returns whether one was waiting.
    pub(crate) fn wake_reader(&self) -> bool {
        let waker = self.0.lock().waker.take();
        let some = waker.is_some();
        wake(waker);
        some
    }

    /// Removes the waker of the reader.
    pub(crate) fn remove_waker(&self) {
        self.0.lock().waker = None;
    }

    /// Whether any message came before the end.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.lock().begun
    }

    /// Closes the queue for the reader. Returns whether the end was known, read or not, and the unread
    /// messages. Requests among them are refused when they are dropped.
    pub(crate) fn abandon(&self) -> (bool, InboxQueue) {
        let mut queue = self.0.lock();
        queue.waker = None;
        (queue.bytes, queue.progress) = (0, 0);
        (std::mem::replace(&mut queue.ended, true), std::mem::take(&mut queue.waiting))
    }

    /// Number of log messages that were dropped because the queue was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }

    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Incoming>> {
        let mut queue = self.0.lock();
        if let Some((worth, incoming)) = queue.waiting.pop_front() {
            queue.bytes -= incoming.size();
            queue.progress -= usize::from(worth == MessagePriority::Progress);
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
    /// Returns whether the message fits. If not, drops outdated progress, then logs, the oldest first; logs
    /// are never dropped for another log.
    fn make_room(&mut self, worth: MessagePriority, size: usize) -> bool {
        if self.bytes + size <= QUEUE_LIMIT {
            return true;
        }
        if worth == MessagePriority::Log && self.progress <= 1 {
            // Nothing can be dropped. Without this check, each log of a flood would scan the whole queue.
            return false;
        }
        let latest = match worth {
            MessagePriority::Progress => None,
            _ => self.waiting.iter().rposition(|(worth, _)| *worth == MessagePriority::Progress),
        };
        let (mut at, mut bytes, mut logs) = (0, self.bytes, 0);
        self.waiting.retain(|(kind, incoming)| {
            let newest = latest == Some(at);
            at += 1;
            let log = *kind == MessagePriority::Log
                && worth != MessagePriority::Log
                && bytes + size > QUEUE_LIMIT;
            let keep = !log && (*kind != MessagePriority::Progress || newest);
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

    fn notify(inbox: &Inbox, worth: MessagePriority, size: usize) -> Result<(), Overflow> {
        inbox.notify(worth, Bytes::from(vec![b'x'; size]))
    }

    fn waiting(inbox: &Inbox) -> Vec<(MessagePriority, usize)> {
        inbox.0.lock().waiting.iter().map(|(worth, one)| (*worth, one.size())).collect()
    }

    #[test]
    fn full_inbox_drops_logs_and_old_progress_only() {
        let inbox = Inbox::default();
        for (worth, size) in [
            (MessagePriority::Progress, 1),
            (MessagePriority::Log, HALF),
            (MessagePriority::Progress, 2),
            (MessagePriority::Log, HALF - 3),
        ] {
            assert_eq!(notify(&inbox, worth, size), Ok(()));
        }
        // No log is dropped for another one.
        assert_eq!(notify(&inbox, MessagePriority::Log, 9), Ok(()));
        assert_eq!((inbox.dropped(), waiting(&inbox).len()), (1, 3));
        assert_eq!(notify(&inbox, MessagePriority::Full, HALF), Ok(()));
        let expected = [
            (MessagePriority::Progress, 2),
            (MessagePriority::Log, HALF - 3),
            (MessagePriority::Full, HALF),
        ];
        assert_eq!(waiting(&inbox), expected);
        assert_eq!(inbox.dropped(), 2);
        assert_eq!(notify(&inbox, MessagePriority::Progress, 4), Ok(()));
        assert_eq!(
            waiting(&inbox),
            [(MessagePriority::Full, HALF), (MessagePriority::Progress, 4)]
        );
        // A message that must not be dropped stays.
        assert_eq!(notify(&inbox, MessagePriority::Full, HALF), Err(Overflow));
        assert_eq!(
            waiting(&inbox),
            [(MessagePriority::Full, HALF), (MessagePriority::Progress, 4)]
        );
    }
}

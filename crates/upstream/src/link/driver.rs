//! Reader of a call's answer, for transports with one stream per call.

use stayput_http::Worker;
use stayput_sync::Mutex;
use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Wake, Waker},
};
use tokio::task::AbortHandle;

use super::{Core, PendingCall};

/// Future that sends a request and reads its answer until the call has ended.
pub(crate) type ReadFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Reader of the answer of one call. While the caller polls the call, it reads on its own thread, which saves
/// a wake-up. If the caller does not poll, or has dropped the call, a task reads.
#[derive(Default)]
pub(super) struct Driver(Mutex<State>);

#[derive(Default)]
enum State {
    /// No reader, or one reader for all calls of the link.
    #[default]
    Unread,
    /// The caller reads when it polls.
    Caller {
        core: Arc<Core>,
        reading: ReadFuture,
        woken: bool,
    },
    /// The future is being polled or moved to a task.
    Now {
        woken: bool,
    },
    Task(AbortHandle),
    /// The reader was stopped.
    Stopped,
}

impl PendingCall {
    /// Starts to read. When this returns, the request was sent as far as possible without waiting.
    pub(crate) fn read_by_caller(self: &Arc<Self>, core: &Arc<Core>, reading: ReadFuture) {
        {
            let mut state = self.driver.0.lock();
            if matches!(&*state, State::Stopped) {
                // The link ended meanwhile.
                return;
            }
            *state = State::Caller { core: core.clone(), reading, woken: true };
        }
        self.read_on();
    }

    /// Stores the task that reads.
    pub(super) fn read_by_task(&self, task: AbortHandle) {
        *self.driver.0.lock() = State::Task(task);
    }

    /// Polls the reader if it was woken. Returns whether it did.
    pub(super) fn read_on(self: &Arc<Self>) -> bool {
        let (core, mut reading) = {
            let mut state = self.driver.0.lock();
            if !matches!(&*state, State::Caller { woken: true, .. }) {
                return false;
            }
            match std::mem::replace(&mut *state, State::Now { woken: false }) {
                State::Caller { core, reading, .. } => (core, reading),
                _ => return false,
            }
        };
        let done = {
            // The caller may poll on another runtime or on none. A worker thread stays on its own runtime.
            let _entered = (!Worker::is_current()).then(|| core.runtime().enter());
            let waker = Waker::from(self.clone());
            reading.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        };
        let mut state = self.driver.0.lock();
        match &*state {
            State::Now { woken } if !done => {
                let woken = *woken;
                *state = State::Caller { core, reading, woken };
                drop(state);
                if self.streams() {
                    self.leave_to_task();
                } else if woken {
                    self.call_caller();
                }
            }
            State::Now { .. } => *state = State::Unread,
            // It was stopped meanwhile. Unlock first: the drop of the future may lock this call again.
            _ => {
                drop(state);
                drop(reading);
            }
        }
        true
    }

    /// Wakes the caller to read; if none waits, a task reads.
    fn call_caller(self: &Arc<Self>) {
        if !self.inbox.wake_reader() {
            self.leave_to_task();
        }
    }

    /// Moves the reader to a task.
    pub(super) fn leave_to_task(&self) {
        let (core, reading) = {
            let mut state = self.driver.0.lock();
            if !matches!(&*state, State::Caller { .. }) {
                return;
            }
            match std::mem::replace(&mut *state, State::Now { woken: false }) {
                State::Caller { core, reading, .. } => (core, reading),
                _ => return,
            }
        };
        let task = Worker::runtime_or(core.runtime()).spawn(reading).abort_handle();
        let mut state = self.driver.0.lock();
        if matches!(&*state, State::Now { .. }) {
            *state = State::Task(task);
        } else {
            drop(state);
            task.abort();
        }
    }

    /// The caller stopped polling. If there is something to read, a task reads it.
    pub(super) fn on_caller_idle(&self) {
        self.inbox.remove_waker();
        if matches!(&*self.driver.0.lock(), State::Caller { woken: true, .. }) {
            self.leave_to_task();
        }
    }

    /// Stops the reader.
    pub(crate) fn stop_driver(&self) {
        let was = std::mem::replace(&mut *self.driver.0.lock(), State::Stopped);
        match was {
            State::Task(task) => task.abort(),
            // Dropped without the lock: the drop of the future may lock this call again.
            was => drop(was),
        }
    }
}

impl Wake for PendingCall {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match &mut *self.driver.0.lock() {
            State::Caller { woken, .. } if !*woken => *woken = true,
            State::Now { woken } => {
                *woken = true;
                return;
            }
            _ => return,
        }
        self.call_caller();
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.0.lock() {
            State::Unread => "no reader",
            State::Caller { .. } => "the caller",
            State::Now { .. } => "a poll",
            State::Task(_) => "a task",
            State::Stopped => "stopped",
        })
    }
}

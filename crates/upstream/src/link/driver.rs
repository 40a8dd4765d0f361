//! Who reads the answer of a call, where each call has a stream of its own.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Wake, Waker},
};

use tokio::task::AbortHandle;

use super::{Core, Flight};
use crate::{lane, lock::lock};

/// Sends a request and reads its answer, until the call has its end.
pub(crate) type Reading = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Who reads the answer of a call. While its caller follows it, he does, on his own thread: nobody has to
/// be woken to wake him. If he does not, because he has not begun to, looks after other things or went
/// away, a task does.
#[derive(Default)]
pub(super) struct Driver(Mutex<State>);

#[derive(Default)]
enum State {
    /// Nobody, or one reader for all calls of a link.
    #[default]
    Nobody,
    /// Whoever follows the call, when there is something to be read.
    Caller {
        core: Arc<Core>,
        reading: Reading,
        woken: bool,
    },
    /// Somebody, at this moment.
    Now {
        woken: bool,
    },
    Task(AbortHandle),
    /// It was stopped.
    Stopped,
}

impl Flight {
    /// Begins to read. It is sent when this returns, as far as that is possible without waiting.
    pub(crate) fn read_by_caller(self: &Arc<Self>, core: &Arc<Core>, reading: Reading) {
        {
            let mut state = lock(&self.driver.0);
            if matches!(&*state, State::Stopped) {
                // The link ended meanwhile.
                return;
            }
            *state = State::Caller { core: core.clone(), reading, woken: true };
        }
        self.read_on();
    }

    /// It is read by a task of its own.
    pub(super) fn read_by_task(&self, task: AbortHandle) {
        *lock(&self.driver.0) = State::Task(task);
    }

    /// Reads what there is to be read. Says whether somebody else did not do so already.
    pub(super) fn read_on(self: &Arc<Self>) -> bool {
        let (core, mut reading) = {
            let mut state = lock(&self.driver.0);
            if !matches!(&*state, State::Caller { woken: true, .. }) {
                return false;
            }
            match std::mem::replace(&mut *state, State::Now { woken: false }) {
                State::Caller { core, reading, .. } => (core, reading),
                _ => return false,
            }
        };
        let done = {
            // Whoever follows the call may do so on another runtime, or on none. A lane stays on its own.
            let _entered = (!lane::is_here()).then(|| core.runtime().enter());
            let waker = Waker::from(self.clone());
            reading.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        };
        let mut state = lock(&self.driver.0);
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
            State::Now { .. } => *state = State::Nobody,
            // It was stopped meanwhile. What is dropped here may look at this call again.
            _ => {
                drop(state);
                drop(reading);
            }
        }
        true
    }

    /// There is something to be read: by whoever follows the call, and if nobody does by a task.
    fn call_caller(self: &Arc<Self>) {
        if !self.inbox.nudge() {
            self.leave_to_task();
        }
    }

    /// From now on a task reads.
    pub(super) fn leave_to_task(&self) {
        let (core, reading) = {
            let mut state = lock(&self.driver.0);
            if !matches!(&*state, State::Caller { .. }) {
                return;
            }
            match std::mem::replace(&mut *state, State::Now { woken: false }) {
                State::Caller { core, reading, .. } => (core, reading),
                _ => return,
            }
        };
        let task = lane::runtime(core.runtime()).spawn(reading).abort_handle();
        let mut state = lock(&self.driver.0);
        if matches!(&*state, State::Now { .. }) {
            *state = State::Task(task);
        } else {
            drop(state);
            task.abort();
        }
    }

    /// Nobody follows the call at the moment.
    pub(super) fn unfollowed(&self) {
        self.inbox.unfollow();
        if matches!(&*lock(&self.driver.0), State::Caller { woken: true, .. }) {
            self.leave_to_task();
        }
    }

    /// Stops whoever reads its answer.
    pub(crate) fn stop_driver(&self) {
        let was = std::mem::replace(&mut *lock(&self.driver.0), State::Stopped);
        match was {
            State::Task(task) => task.abort(),
            // It may look at this call again while it is dropped.
            was => drop(was),
        }
    }
}

impl Wake for Flight {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match &mut *lock(&self.driver.0) {
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
        f.write_str(match &*lock(&self.0) {
            State::Nobody => "nobody",
            State::Caller { .. } => "the caller",
            State::Now { .. } => "somebody, now",
            State::Task(_) => "a task",
            State::Stopped => "nobody any more",
        })
    }
}

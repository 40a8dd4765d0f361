//! Where what an event loop asked for waits until the loop fetches it.

use std::{
    collections::HashMap,
    fmt,
    io::{PipeReader, PipeWriter, Read as _, Write as _, pipe},
    os::fd::AsRawFd as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use pyo3::{PyTraverseError, PyVisit, intern, prelude::*};

use crate::{
    keep::lock,
    message::{Caller, Message, Sink, What},
    op::{Op, Outcome, Running, finished},
    question::{Asked, Question},
};

/// What came for the callers of one event loop. The loop watches its file, and one look fetches everything.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Mailbox {
    queue: Arc<Queue>,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiting>>,
    /// By hub: who answers what a server asks outside any call.
    listeners: Mutex<HashMap<u64, Py<PyAny>>>,
}

/// A future of the loop, and what it waits for.
struct Waiting {
    future: Py<PyAny>,
    listener: Option<Py<PyAny>>,
    running: Running,
}

#[pymethods]
impl Mailbox {
    #[new]
    fn new() -> PyResult<Self> {
        let (file, bell) = pipe()?;
        let post = Post { waiting: Vec::new(), rung: false, bell };
        Ok(Self {
            queue: Arc::new(Queue { post: Mutex::new(post), file }),
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
            listeners: Mutex::default(),
        })
    }

    /// The file that can be read when something is there.
    fn fileno(&self) -> i32 {
        self.queue.file.as_raw_fd()
    }

    /// Begins something whose outcome `future` gets. `listener` hears and answers meanwhile.
    fn start(
        &self,
        py: Python<'_>,
        op: &Bound<'_, Op>,
        future: Py<PyAny>,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let (caller, op) = (Caller { sink: self.queue.clone(), token }, op.get());
        if let Some(listener) = &listener {
            let keep = op.keep();
            *lock(&keep.last) = Some(Caller { token: 0, ..caller.clone() });
            let resident = listener.call_method0(py, intern!(py, "resident"))?;
            let before = lock(&self.listeners).insert(keep.id, resident);
            // Not under the lock: whatever it held goes with it.
            drop(before);
        }
        let running = op.launch(caller)?;
        // What it says in between waits until the loop fetches it, which is after this.
        lock(&self.waiting).insert(token, Waiting { future, listener, running });
        Ok(token)
    }

    /// Nobody waits for it any more. What is under way is cancelled.
    fn cancel(&self, token: u64) {
        let waiting = lock(&self.waiting).remove(&token);
        if let Some(waiting) = waiting {
            waiting.running.abort();
        }
    }

    /// A future leads to its task, and that to this: who waits on a loop that is gone is found by this alone.
    #[allow(clippy::needless_pass_by_value, reason = "as PyO3 gives it")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The collector must not wait. What is in use right now is not garbage.
        if let Ok(waiting) = self.waiting.try_lock() {
            for one in waiting.values() {
                visit.call(&one.future)?;
                visit.call(&one.listener)?;
            }
        }
        if let Ok(listeners) = self.listeners.try_lock() {
            for one in listeners.values() {
                visit.call(one)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for one in waiting.values() {
            one.running.abort();
        }
        let listeners = std::mem::take(&mut *lock(&self.listeners));
        // Not under the locks: whatever they held goes with them.
        drop((waiting, listeners));
    }

    /// Gives everything that came to those who wait for it.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let mut broken = Ok(());
        for Message { token, what } in self.queue.fetch()? {
            let given = match what {
                What::Done(done) => self.done(py, token, done),
                What::Asked(asked) => self.asked(py, token, asked),
                What::Heard(text) => self.heard(py, token, &text),
            };
            // The others wait for theirs all the same.
            broken = broken.and(given);
        }
        broken
    }
}

impl Mailbox {
    fn done(&self, py: Python<'_>, token: u64, done: Outcome) -> PyResult<()> {
        // Cancelled meanwhile.
        let Some(waiting) = lock(&self.waiting).remove(&token) else { return Ok(()) };
        let future = waiting.future.bind(py);
        if future.call_method0(intern!(py, "done"))?.is_truthy()? {
            return Ok(());
        }
        match finished(py, done) {
            Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
            Err(error) => {
                future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?
            }
        };
        Ok(())
    }

    fn listener(&self, py: Python<'_>, token: u64) -> Option<Py<PyAny>> {
        let waiting = lock(&self.waiting);
        waiting.get(&token)?.listener.as_ref().map(|listener| listener.clone_ref(py))
    }

    fn asked(&self, py: Python<'_>, token: u64, asked: Asked) -> PyResult<()> {
        let of_hub = || lock(&self.listeners).get(&asked.hub).map(|it| it.clone_ref(py));
        // Without one it is dropped, and so refused.
        if let Some(listener) = self.listener(py, token).or_else(of_hub) {
            listener.call_method1(py, intern!(py, "ask"), (Question::new(asked),))?;
        }
        Ok(())
    }

    fn heard(&self, py: Python<'_>, token: u64, text: &str) -> PyResult<()> {
        if let Some(listener) = self.listener(py, token) {
            listener.call_method1(py, intern!(py, "hear"), (text,))?;
        }
        Ok(())
    }
}

/// What came and was not fetched.
struct Queue {
    post: Mutex<Post>,
    file: PipeReader,
}

struct Post {
    waiting: Vec<Message>,
    /// Whether there is a byte in the file.
    rung: bool,
    bell: PipeWriter,
}

impl Queue {
    fn fetch(&self) -> PyResult<Vec<Message>> {
        let mut post = lock(&self.post);
        if post.rung {
            // It is there: it was written under the same lock.
            (&self.file).read_exact(&mut [0])?;
            post.rung = false;
        }
        Ok(std::mem::take(&mut post.waiting))
    }
}

impl Sink for Queue {
    fn put(&self, message: Message) {
        let mut post = lock(&self.post);
        post.waiting.push(message);
        if !post.rung {
            post.rung = post.bell.write_all(&[1]).is_ok();
        }
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}

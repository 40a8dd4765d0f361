//! Something that is asked of a hub.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use pyo3::prelude::*;
use stayput::{
    Error,
    by_hand::{InSession as _, Scope},
};
use tokio::task::AbortHandle;

use crate::{
    error::raised,
    keep::{Here, Keep, lock},
    message::{CALLER, Caller, Message, Sink, What},
    question::Question,
    value::Value,
};

/// How often a thread that waits looks whether somebody wants to interrupt it.
const LOOK: Duration = Duration::from_millis(100);

/// What came of it: something that becomes a Python object where it is fetched.
pub(crate) type Outcome = Result<Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>, Error>;

type Job = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Something that is asked of a hub, and begins when it is waited for.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Op {
    job: Mutex<Option<Here<Job>>>,
    keep: Arc<Keep>,
}

impl Op {
    /// In a scope, if there is one.
    pub(crate) fn new<T, F>(keep: &Arc<Keep>, scope: Option<Scope>, future: F) -> Self
    where
        T: Value,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let job = async move {
            let done = match scope {
                Some(scope) => future.in_session(scope).await,
                None => future.await,
            };
            done.map(|value| -> Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send> {
                Box::new(move |py| value.into_python(py))
            })
        };
        Self { job: Mutex::new(Some(Here::new(Box::pin(job)))), keep: keep.clone() }
    }

    pub(crate) fn keep(&self) -> &Arc<Keep> {
        &self.keep
    }

    /// Begins it on the hub's thread. Whatever becomes of that thread, the caller is told.
    pub(crate) fn launch(&self, caller: Caller) -> PyResult<AbortHandle> {
        self.keep.check().map_err(|error| raised(&error))?;
        let twice = || raised(&Error::Invalid("this was begun already".to_owned()));
        let job = lock(&self.job).take().ok_or_else(twice)?;
        let job = job.into_inner().map_err(|error| raised(&error))?;
        let promise = Promise(Some(caller.clone()));
        let running = async move {
            let done = CALLER.scope(caller, job).await;
            promise.keep(done);
        };
        Ok(self.keep.runtime.spawn(running).abort_handle())
    }
}

#[pymethods]
impl Op {
    /// Begins it and waits for it, without the lock of the interpreter. `listener` hears and answers meanwhile.
    fn block(&self, py: Python<'_>, listener: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let (line, mut told) = mpsc::channel();
        let running = Running(self.launch(Caller { sink: Arc::new(Line(line)), token: 0 })?);
        loop {
            let next;
            (told, next) = py.detach(move || {
                let next = told.recv_timeout(LOOK);
                (told, next)
            });
            match (next.map(|message| message.what), &listener) {
                (Ok(What::Done(done)), _) => return finished(py, done),
                (Ok(What::Asked(asked)), Some(listener)) => {
                    listener.call_method1(py, "ask", (Question::new(asked),))?;
                }
                (Ok(What::Heard(text)), Some(listener)) => {
                    listener.call_method1(py, "hear", (text,))?;
                }
                (Ok(_), None) => {}
                // Whoever interrupts it does not want it any more.
                (Err(RecvTimeoutError::Timeout), _) => py.check_signals()?,
                (Err(RecvTimeoutError::Disconnected), _) => return Err(raised(&Error::Closed)),
            }
            let _ = &running;
        }
    }
}

/// What came of it, for Python.
pub(crate) fn finished(py: Python<'_>, done: Outcome) -> PyResult<Py<PyAny>> {
    match done {
        Ok(value) => value(py),
        Err(error) => Err(raised(&error)),
    }
}

/// What a thread waits on.
struct Line(mpsc::Sender<Message>);

impl Sink for Line {
    fn put(&self, message: Message) {
        // Nobody waits any more.
        let _ = self.0.send(message);
    }
}

/// Ends with whoever waits for it.
struct Running(AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// That a caller will be told, whatever happens.
struct Promise(Option<Caller>);

impl Promise {
    fn keep(mut self, done: Outcome) {
        if let Some(caller) = self.0.take() {
            caller.tell(What::Done(done));
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(caller) = self.0.take() {
            caller.tell(What::Done(Err(Error::Closed)));
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Op")
    }
}

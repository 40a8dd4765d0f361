//! Something that is asked of a hub.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use pyo3::prelude::*;
use stayput::{
    Error,
    by_hand::{InSession as _, Scope},
};
use tokio::runtime::Handle;

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
pub(crate) type Outcome = Result<Fetched, Error>;

type Fetched = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

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
            done.map(|value| -> Fetched { Box::new(move |py| value.into_python(py)) })
        };
        Self { job: Mutex::new(Some(Here::new(Box::pin(job)))), keep: keep.clone() }
    }

    pub(crate) fn keep(&self) -> &Arc<Keep> {
        &self.keep
    }

    /// Begins it here, as far as it comes without waiting, so that a call is on its way to the server before anybody
    /// else has to wake up. The rest is for the hub's thread; whatever becomes of that, the caller is told.
    pub(crate) fn launch(&self, caller: Caller) -> PyResult<Running> {
        self.keep.check().map_err(|error| raised(&error))?;
        let twice = || raised(&Error::Invalid("this was begun already".to_owned()));
        let job = lock(&self.job).take().ok_or_else(twice)?;
        let job = job.into_inner().map_err(|error| raised(&error))?;
        let promise = Promise(Some(caller.clone()));
        let work: Work = Box::pin(async move {
            let done = CALLER.scope(caller, job).await;
            promise.keep(done);
        });
        let runtime = self.keep.runtime.clone();
        let begun = Arc::new(Mutex::new(Begun { work: Some(work), task: None }));
        let later = Later { rest: Mutex::new(Some(Rest(begun.clone()))), runtime: runtime.clone() };
        {
            let _inside = runtime.enter();
            let waker = Waker::from(Arc::new(later));
            let _ = lock(&begun).poll(&mut Context::from_waker(&waker));
        }
        Ok(Running { begun: Here::new(begun), runtime })
    }
}

#[pymethods]
impl Op {
    /// Begins it and waits for it, without the lock of the interpreter. `listener` hears and answers meanwhile.
    fn block(&self, py: Python<'_>, listener: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let (line, mut told) = mpsc::channel();
        let running = self.launch(Caller { sink: Arc::new(Line(line)), token: 0 })?;
        let _ended = Ended(&running);
        loop {
            let next;
            (told, next) = py.detach(move || {
                let next = told.recv_timeout(LOOK);
                (told, next)
            });
            match (next.map(|message| message.what), listener) {
                (Ok(What::Done(done)), _) => return finished(py, done),
                (Ok(What::Asked(asked)), Some(listener)) => {
                    listener.call_method1("ask", (Question::new(asked),))?;
                }
                (Ok(What::Heard(text)), Some(listener)) => {
                    listener.call_method1("hear", (text,))?;
                }
                (Ok(_), None) => {}
                // Whoever interrupts it does not want it any more.
                (Err(RecvTimeoutError::Timeout), _) => py.check_signals()?,
                (Err(RecvTimeoutError::Disconnected), _) => return Err(raised(&Error::Closed)),
            }
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

/// What is done, here as far as it comes and then on the hub's thread.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Something that was begun.
pub(crate) struct Running {
    /// It is not a fork's to cancel.
    begun: Here<Arc<Mutex<Begun>>>,
    runtime: Handle,
}

impl Running {
    /// Nobody wants it any more. It is dropped here, so that a server hears of it before whatever is called next.
    pub(crate) fn abort(&self) {
        let Ok(begun) = self.begun.get() else { return };
        let _inside = self.runtime.enter();
        let (work, task) = lock(begun).take();
        drop(work);
        if let Some(task) = task {
            // It sees that there is nothing left to do.
            task.wake();
        }
    }
}

struct Begun {
    /// Until it is done, or nobody wants it any more.
    work: Option<Work>,
    /// The task of the hub's thread that waits to go on with it, if there is one.
    task: Option<Waker>,
}

impl Begun {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.work.as_mut().map_or(Poll::Ready(()), |work| work.as_mut().poll(cx));
        if polled.is_ready() {
            *self = Self { work: None, task: None };
        }
        polled
    }

    fn take(&mut self) -> (Option<Work>, Option<Waker>) {
        (self.work.take(), self.task.take())
    }
}

/// Leaves the rest to the hub's thread when there is something to go on with, which that thread is mostly the one to
/// say: until then it need not wake up.
struct Later {
    rest: Mutex<Option<Rest>>,
    runtime: Handle,
}

impl Wake for Later {
    fn wake(self: Arc<Self>) {
        let rest = lock(&self.rest).take();
        if let Some(rest) = rest {
            self.runtime.spawn(poll_fn(move |cx| rest.poll(cx)));
        }
    }
}

/// What the hub's thread does of it. If that ends, so does this.
struct Rest(Arc<Mutex<Begun>>);

impl Rest {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut begun = lock(&self.0);
        let polled = begun.poll(cx);
        if polled.is_pending() {
            begun.task = Some(cx.waker().clone());
        }
        polled
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let left = lock(&self.0).take();
        drop(left);
    }
}

/// Ends something with whoever waits for it.
struct Ended<'a>(&'a Running);

impl Drop for Ended<'_> {
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

//! Session, for Python.

use std::{fmt, sync::Arc};

use pyo3::{prelude::*, types::PyTuple};
use stayput::{Error, ffi};

use crate::{
    error::to_exception,
    notifications::OpenedNotifications,
    operation::Operation,
    scope::{Scope, ScopeArg},
    server_request::handlers,
    shared_hub::{ProcessLocal, SharedHub, seconds},
    value::{self, IntoPython},
};

/// Handle of a session.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Session {
    session: ProcessLocal<stayput::Session>,
    // Last field, so that it is dropped last: the others belong to this hub.
    shared: Arc<SharedHub>,
}

impl Session {
    pub(crate) fn new(shared: &Arc<SharedHub>, session: stayput::Session) -> Self {
        Self { session: ProcessLocal::new(session), shared: shared.clone() }
    }

    pub(crate) fn inner(&self) -> Result<stayput::Session, Error> {
        self.session.get().cloned()
    }

    /// Creates an operation on the session.
    fn op<T, F>(&self, ask: impl FnOnce(stayput::Session) -> F) -> PyResult<Operation>
    where
        T: IntoPython,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let session = self.inner().map_err(|error| to_exception(&error))?;
        Ok(Operation::new(&self.shared, None, ask(session)))
    }
}

/// Session that a call names, if any.
pub(crate) type SessionArg<'a> = Option<&'a Bound<'a, Session>>;

/// Session that was opened, on its way to Python.
pub(crate) struct OpenedSession(pub(crate) Arc<SharedHub>, pub(crate) stayput::Session);

impl IntoPython for OpenedSession {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let session = Session::new(&self.0, self.1);
        Ok(Py::new(py, session)?.into_any())
    }
}

#[pymethods]
impl Session {
    /// Id, for logs.
    #[getter]
    fn id(&self) -> PyResult<String> {
        let id = self.session.get().map(|session| session.id().to_string());
        id.map_err(|error| to_exception(&error))
    }

    /// Creates its scope inside `around`.
    #[pyo3(signature = (around))]
    fn scope(&self, around: ScopeArg<'_>) -> PyResult<Scope> {
        let made =
            self.inner().and_then(|session| Scope::within(around, || ffi::session_scope(&session)));
        Ok(Scope::new(&self.shared, made.map_err(|error| to_exception(&error))?))
    }

    /// Sets the kinds of requests that Python handlers answer in this session.
    #[allow(clippy::needless_pass_by_value, reason = "as PyO3 gives it")]
    fn set_handlers(&self, kinds: Vec<String>) -> PyResult<()> {
        let set = || {
            let handlers = handlers(&kinds, self.shared.id, &self.shared.fallback)?;
            // The clone shares its handlers with this session.
            drop(self.inner()?.with_handlers(handlers));
            Ok(())
        };
        set().map_err(|error: Error| to_exception(&error))
    }

    /// Sets its keeper of session ids, by its number in Python.
    fn set_keeper(&self, number: u64) -> PyResult<()> {
        // Created first, so that its number is forgotten also after an error.
        let keeper = self.shared.keeper(number);
        let session = self.inner().map_err(|error| to_exception(&error))?;
        // The clone shares its keeper with this session.
        drop(session.with_id_keeper(keeper));
        Ok(())
    }

    /// Subscribes to what a server says outside of calls.
    fn listen(&self, server: String, resources: Vec<String>) -> PyResult<Operation> {
        let shared = self.shared.clone();
        self.op(|session| async move {
            let resources: Vec<&str> = resources.iter().map(String::as_str).collect();
            Ok(OpenedNotifications(shared, session.listen(&server, &resources).await?))
        })
    }

    /// Opens the link to a server.
    fn bind(&self, server: String) -> PyResult<Operation> {
        self.op(|session| async move { session.bind(&server).await.map(drop) })
    }

    /// Returns the details of the session.
    fn info(&self) -> PyResult<Operation> {
        self.op(|session| async move { session.info().await })
    }

    /// Names of the servers to which it has a link.
    fn servers(&self) -> PyResult<Vec<String>> {
        Ok(self.inner().map_err(|error| to_exception(&error))?.servers())
    }

    /// Returns the state of the link to a server.
    fn status<'py>(&self, py: Python<'py>, server: &str) -> PyResult<Bound<'py, PyTuple>> {
        let status = self.inner().and_then(|session| session.status(server));
        value::status(py, status.map_err(|error| to_exception(&error))?)
    }

    /// Closes the link to a server, or all links.
    fn restart(&self, server: Option<String>) -> PyResult<Operation> {
        self.op(|session| async move {
            match server {
                Some(server) => session.restart(&server).await,
                None => session.restart_all().await,
            }
        })
    }

    /// Clears the cached lists.
    fn clear_cache(&self) -> PyResult<()> {
        self.inner().map(|session| session.clear_cache()).map_err(|error| to_exception(&error))
    }

    /// Sets the idle time after which it expires, in seconds.
    fn extend(&self, idle: f64) -> PyResult<Operation> {
        let idle = seconds(idle)?;
        self.op(|session| async move { session.extend(idle).await })
    }

    /// Returns a ticket for another process, and releases it if asked to.
    fn ticket(&self, release: bool) -> PyResult<Operation> {
        self.op(move |session| async move {
            let ticket = if release { session.into_ticket().await } else { session.ticket().await };
            Ok(ticket?.expose().to_owned())
        })
    }

    /// Ends it and its links.
    fn end(&self) -> PyResult<Operation> {
        self.op(|session| async move { session.end().await })
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

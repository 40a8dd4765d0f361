//! A session, as Python holds it.

use std::{fmt, sync::Arc};

use pyo3::{prelude::*, types::PyTuple};
use stayput::{Error, by_hand};

use crate::{
    error::raised,
    keep::{Here, Keep, seconds},
    op::Op,
    question::handlers,
    scope::{Around, Scope},
    value::{self, Value},
};

/// A session in somebody's hands.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Session {
    session: Here<stayput::Session>,
    // Last: what is above belongs to it.
    keep: Arc<Keep>,
}

impl Session {
    pub(crate) fn new(keep: &Arc<Keep>, session: stayput::Session) -> Self {
        Self { session: Here::new(session), keep: keep.clone() }
    }

    pub(crate) fn inner(&self) -> Result<stayput::Session, Error> {
        self.session.get().cloned()
    }

    /// Something that is asked of it.
    fn op<T, F>(&self, ask: impl FnOnce(stayput::Session) -> F) -> PyResult<Op>
    where
        T: Value,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let session = self.inner().map_err(|error| raised(&error))?;
        Ok(Op::new(&self.keep, None, ask(session)))
    }
}

/// The session that something is called on, if one is named.
pub(crate) type On<'a> = Option<&'a Bound<'a, Session>>;

/// A session that was opened, on its way to Python.
pub(crate) struct Opened(pub(crate) Arc<Keep>, pub(crate) stayput::Session);

impl Value for Opened {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let session = Session::new(&self.0, self.1);
        Ok(Py::new(py, session)?.into_any())
    }
}

#[pymethods]
impl Session {
    /// Its id, for logs.
    #[getter]
    fn id(&self) -> PyResult<String> {
        let id = self.session.get().map(|session| session.id().to_string());
        id.map_err(|error| raised(&error))
    }

    /// Its scope inside `around`.
    #[pyo3(signature = (around))]
    fn scope(&self, around: Around<'_>) -> PyResult<Scope> {
        let made =
            self.inner().and_then(|session| Scope::within(around, || by_hand::scope(&session)));
        Ok(Scope::new(&self.keep, made.map_err(|error| raised(&error))?))
    }

    /// Lets Python answer what servers ask in this session.
    #[allow(clippy::needless_pass_by_value, reason = "as PyO3 gives it")]
    fn set_handlers(&self, kinds: Vec<String>) -> PyResult<()> {
        let set = || {
            let handlers = handlers(&kinds, self.keep.id, &self.keep.last)?;
            // A clone is the same session.
            drop(self.inner()?.with_handlers(handlers));
            Ok(())
        };
        set().map_err(|error: Error| raised(&error))
    }

    /// Opens the link to a server.
    fn bind(&self, server: String) -> PyResult<Op> {
        self.op(|session| async move { session.bind(&server).await.map(drop) })
    }

    /// What is known of it.
    fn info(&self) -> PyResult<Op> {
        self.op(|session| async move { session.info().await })
    }

    /// The servers it has links to.
    fn servers(&self) -> PyResult<Vec<String>> {
        Ok(self.inner().map_err(|error| raised(&error))?.servers())
    }

    /// How a server stands in it.
    fn status<'py>(&self, py: Python<'py>, server: &str) -> PyResult<Bound<'py, PyTuple>> {
        let status = self.inner().and_then(|session| session.status(server));
        value::status(py, status.map_err(|error| raised(&error))?)
    }

    /// Lets a server begin anew; without a name, all that it has links to.
    fn restart(&self, server: Option<String>) -> PyResult<Op> {
        self.op(|session| async move {
            match server {
                Some(server) => session.restart(&server).await,
                None => session.restart_all().await,
            }
        })
    }

    /// Forgets the lists of its servers.
    fn clear_cache(&self) -> PyResult<()> {
        self.inner().map(|session| session.clear_cache()).map_err(|error| raised(&error))
    }

    /// How long it lives without use, in seconds.
    fn extend(&self, idle: f64) -> PyResult<Op> {
        let idle = seconds(idle)?;
        self.op(|session| async move { session.extend(idle).await })
    }

    /// Lets go of it, so that another process can go on with it.
    fn ticket(&self) -> PyResult<Op> {
        self.op(|session| async move {
            session.into_ticket().await.map(|ticket| ticket.expose().to_owned())
        })
    }

    /// Ends it and everything behind it.
    fn end(&self) -> PyResult<Op> {
        self.op(|session| async move { session.end().await })
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

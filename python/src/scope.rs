//! Scopes and runs, which Python stores in its context variables.

use std::{fmt, sync::Arc};

use pyo3::prelude::*;
use stayput::{Error, SessionId, ffi};
use stayput_sync::Mutex;

use crate::{
    error::to_exception,
    operation::Operation,
    shared_hub::{ProcessLocal, SharedHub},
};

/// Scope of a task.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Scope {
    /// `None` for a sub-agent that was started outside any session.
    session: Option<SessionId>,
    /// `None` after it was left.
    scope: Mutex<Option<ProcessLocal<ffi::Scope>>>,
    // Last field, so that it is dropped last: the others belong to this hub.
    shared: Arc<SharedHub>,
}

impl Scope {
    pub(crate) fn new(shared: &Arc<SharedHub>, scope: ffi::Scope) -> Self {
        let session = scope.session();
        Self { session, scope: Mutex::new(Some(ProcessLocal::new(scope))), shared: shared.clone() }
    }

    pub(crate) fn shared(&self) -> &Arc<SharedHub> {
        &self.shared
    }

    fn inner(&self) -> Result<ffi::Scope, Error> {
        match &*self.scope.lock() {
            Some(scope) => scope.get().cloned(),
            None => Err(match self.session {
                Some(session) => Error::SessionEnded { session },
                None => Error::InvalidInput("the sub-agent of this task has ended".to_owned()),
            }),
        }
    }

    /// Runs a function inside a scope, if there is one.
    pub(crate) fn within<T>(around: ScopeArg<'_>, make: impl FnOnce() -> T) -> Result<T, Error> {
        Ok(match Self::of(around)? {
            Some(scope) => ffi::within(scope, make),
            None => make(),
        })
    }

    pub(crate) fn of(around: ScopeArg<'_>) -> Result<Option<ffi::Scope>, Error> {
        around.map(|scope| scope.get().inner()).transpose()
    }
}

/// Scope of the caller, if there is one.
pub(crate) type ScopeArg<'a> = Option<&'a Bound<'a, Scope>>;

#[pymethods]
impl Scope {
    /// Whether it belongs to a session.
    #[getter]
    fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Id of its hub.
    #[getter]
    fn hub_id(&self) -> u64 {
        self.shared.id
    }

    /// Creates the scope of work that is bound to this scope and is called in `around`: it has this session, and the
    /// access rules of both.
    #[pyo3(signature = (around))]
    fn called_in(&self, around: ScopeArg<'_>) -> PyResult<Self> {
        let made = self.inner().and_then(|own| Self::within(around, || ffi::bound_scope(&own)));
        Ok(Self::new(&self.shared, made.map_err(|error| to_exception(&error))?))
    }

    /// Drops the scope, which ends its own links. Further use is an error.
    fn leave(&self) {
        let left = self.scope.lock().take();
        drop(left);
    }
}

/// Run that was begun.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Run {
    run: Mutex<Option<ProcessLocal<ffi::Run>>>,
    shared: Arc<SharedHub>,
}

impl Run {
    pub(crate) fn new(shared: &Arc<SharedHub>, run: ffi::Run) -> Self {
        Self { run: Mutex::new(Some(ProcessLocal::new(run))), shared: shared.clone() }
    }
}

#[pymethods]
impl Run {
    /// Scope of the run.
    fn scope(&self) -> PyResult<Scope> {
        let run = self.run.lock();
        let run = run.as_ref().ok_or(Error::HubClosed).and_then(ProcessLocal::get);
        Ok(Scope::new(&self.shared, run.map_err(|error| to_exception(&error))?.scope()))
    }

    /// Ends the run if it has its own session, and waits until its links are closed.
    fn finish(&self) -> PyResult<Operation> {
        let run = self.run.lock().take().map(ProcessLocal::into_inner).transpose();
        let run = run.map_err(|error| to_exception(&error))?;
        Ok(Operation::new(&self.shared, None, async move {
            match run {
                Some(run) => run.finish().await,
                None => Ok(()),
            }
        }))
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({:?})", self.session)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Run")
    }
}

//! Scopes and runs, which Python keeps in its own contexts.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use pyo3::prelude::*;
use stayput::{Error, SessionId, by_hand};

use crate::{
    error::raised,
    keep::{Here, Keep, lock},
    op::Op,
};

/// What a task belongs to.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Scope {
    session: SessionId,
    /// Until it was left.
    scope: Mutex<Option<Here<by_hand::Scope>>>,
    // Last: what is above belongs to it.
    keep: Arc<Keep>,
}

impl Scope {
    pub(crate) fn new(keep: &Arc<Keep>, scope: by_hand::Scope) -> Self {
        let session = scope.session();
        Self { session, scope: Mutex::new(Some(Here::new(scope))), keep: keep.clone() }
    }

    fn inner(&self) -> Result<by_hand::Scope, Error> {
        match &*lock(&self.scope) {
            Some(scope) => scope.get().cloned(),
            None => Err(Error::Ended { session: self.session }),
        }
    }

    /// Makes something inside this scope.
    pub(crate) fn within<T>(around: Around<'_>, make: impl FnOnce() -> T) -> Result<T, Error> {
        Ok(match Self::of(around)? {
            Some(scope) => by_hand::within(scope, make),
            None => make(),
        })
    }

    pub(crate) fn of(around: Around<'_>) -> Result<Option<by_hand::Scope>, Error> {
        around.map(|scope| scope.get().inner()).transpose()
    }

    /// A sub-agent's scope inside this one.
    fn sub(&self, make: impl FnOnce() -> Option<by_hand::Scope>) -> Result<Option<Self>, Error> {
        let made = by_hand::within(self.inner()?, make);
        Ok(made.map(|scope| Self::new(&self.keep, scope)))
    }
}

/// The scope that something is called in, if there is one.
pub(crate) type Around<'a> = Option<&'a Bound<'a, Scope>>;

#[pymethods]
impl Scope {
    /// The id of its session.
    #[getter]
    fn session_id(&self) -> String {
        self.session.to_string()
    }

    /// The number of the hub it is of.
    #[getter]
    fn hub_id(&self) -> u64 {
        self.keep.id
    }

    /// The scope of a sub-agent with a link of its own to a server.
    fn isolated(&self, server: &str) -> PyResult<Option<Self>> {
        self.sub(|| by_hand::isolated(server)).map_err(|error| raised(&error))
    }

    /// The scope of a sub-agent without a server.
    fn denied(&self, server: &str) -> PyResult<Option<Self>> {
        self.sub(|| by_hand::denied(server)).map_err(|error| raised(&error))
    }

    /// Ends what is of this scope alone. Whoever still has it gets nothing more.
    fn leave(&self) {
        let left = lock(&self.scope).take();
        drop(left);
    }
}

/// A run that was begun.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Run {
    run: Mutex<Option<Here<by_hand::Run>>>,
    keep: Arc<Keep>,
}

impl Run {
    pub(crate) fn new(keep: &Arc<Keep>, run: by_hand::Run) -> Self {
        Self { run: Mutex::new(Some(Here::new(run))), keep: keep.clone() }
    }
}

#[pymethods]
impl Run {
    /// The scope of all that belongs to it.
    fn scope(&self) -> PyResult<Scope> {
        let run = lock(&self.run);
        let run = run.as_ref().ok_or(Error::Closed).and_then(Here::get);
        Ok(Scope::new(&self.keep, run.map_err(|error| raised(&error))?.scope()))
    }

    /// Ends it, if it has a session of its own, and waits until nothing is left.
    fn finish(&self) -> PyResult<Op> {
        let run = lock(&self.run).take().map(Here::into_inner).transpose();
        let run = run.map_err(|error| raised(&error))?;
        Ok(Op::new(&self.keep, None, async move {
            match run {
                Some(run) => run.finish().await,
                None => Ok(()),
            }
        }))
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({})", self.session)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Run")
    }
}

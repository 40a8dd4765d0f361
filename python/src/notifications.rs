//! Notifications of servers outside of calls, for Python.

use std::{fmt, sync::Arc};

use pyo3::prelude::*;
use stayput::ServerNotification;
use tokio::sync::Mutex;

use crate::{
    operation::Operation,
    shared_hub::{ProcessLocal, SharedHub},
    value::IntoPython,
};

/// Subscription to the notifications of a server.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Notifications {
    inner: ProcessLocal<Arc<Mutex<Option<stayput::Notifications>>>>,
    shared: Arc<SharedHub>,
}

/// Subscription on its way to Python.
pub(crate) struct OpenedNotifications(pub(crate) Arc<SharedHub>, pub(crate) stayput::Notifications);

impl IntoPython for OpenedNotifications {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self(shared, notifications) = self;
        let inner = ProcessLocal::new(Arc::new(Mutex::new(Some(notifications))));
        Ok(Py::new(py, Notifications { inner, shared })?.into_any())
    }
}

#[pymethods]
impl Notifications {
    /// Waits for the next notification: method and parameters, as JSON. Returns `None` when the link has ended or the hub
    /// is closed.
    fn next(&self) -> Operation {
        let (inner, mut closed) = (self.inner.get().cloned(), self.shared.closed.subscribe());
        Operation::new(&self.shared, None, async move {
            let inner = inner?;
            let mut inner = inner.lock().await;
            let Some(notifications) = inner.as_mut() else { return Ok(NextNotification(None)) };
            Ok(NextNotification(tokio::select! {
                biased;
                next = notifications.next() => next,
                _ = closed.wait_for(|closed| *closed) => None,
            }))
        })
    }

    /// Ends the subscription. A `next` that waits is to be cancelled before.
    fn close(&self) -> Operation {
        let inner = self.inner.get().cloned();
        Operation::new(&self.shared, None, async move {
            drop(inner?.lock().await.take());
            Ok(())
        })
    }
}

struct NextNotification(Option<ServerNotification>);

impl IntoPython for NextNotification {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.0 {
            Some(it) => {
                Ok((it.method, it.params.to_string()).into_pyobject(py)?.into_any().unbind())
            }
            None => Ok(py.None()),
        }
    }
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notifications")
    }
}

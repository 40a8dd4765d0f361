//! Requests to run the callbacks of a hub, for the thread of Python that runs them.

use std::{fmt, sync::Arc};

use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::{
    callback_channel::CallbackReceiver, message::PendingRequest, operation::Operation,
    server_request::ServerRequest, shared_hub::SharedHub, value::IntoPython,
};

/// Requests to run a callback, for Python.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct CallbackRequests {
    receiver: Arc<Mutex<CallbackReceiver>>,
    shared: Arc<SharedHub>,
}

impl CallbackRequests {
    pub(crate) fn new(shared: &Arc<SharedHub>, receiver: CallbackReceiver) -> Self {
        Self { receiver: Arc::new(Mutex::new(receiver)), shared: shared.clone() }
    }
}

#[pymethods]
impl CallbackRequests {
    /// Waits for the next request. Returns `None` when the hub is closed.
    fn next(&self) -> Operation {
        let (receiver, mut closed) = (self.receiver.clone(), self.shared.closed.subscribe());
        Operation::new(&self.shared, None, async move {
            let mut receiver = receiver.lock().await;
            Ok(NextRequest(tokio::select! {
                biased;
                request = receiver.next() => request,
                _ = closed.wait_for(|closed| *closed) => None,
            }))
        })
    }
}

struct NextRequest(Option<PendingRequest>);

impl IntoPython for NextRequest {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.0 {
            Some(request) => Ok(Py::new(py, ServerRequest::new(request))?.into_any()),
            None => Ok(py.None()),
        }
    }
}

impl fmt::Debug for CallbackRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackRequests")
    }
}

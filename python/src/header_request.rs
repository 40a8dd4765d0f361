//! Requests for headers of HTTP servers, which a thread of Python answers.

use std::{fmt, sync::Arc};

use pyo3::prelude::*;
use serde_json::{Value, json};
use stayput::Headers;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::{
    message::{HeaderReceiver, PendingRequest},
    operation::Operation,
    server_request::ServerRequest,
    shared_hub::SharedHub,
    value::IntoPython,
};

/// Creates a callback that forwards to Python, and the receiver of its requests. It does not depend on the caller of an
/// operation: a link can send a request outside of calls.
pub(crate) fn headers(hub: u64) -> (Headers, HeaderReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let headers = Headers::new(move |request| {
        let params = json!({
            "server": request.server,
            "session": request.session.map(|id| id.to_string()),
            "session_name": request.session_name,
            "agent": request.agent,
            "rejected": request.rejected,
        });
        let (answer, answered) = oneshot::channel();
        let pending = PendingRequest { hub, kind: "headers", params: params.to_string(), answer };
        let sent = sender.send(pending);
        async move {
            let gone = || "the thread that runs the callback has ended".to_owned();
            sent.map_err(|_| gone())?;
            let answer = answered.await.unwrap_or_else(|_| Err(gone()))?;
            to_headers(answer)
                .ok_or_else(|| "the callback must return a dict of strings".to_owned())
        }
    });
    (headers, receiver)
}

fn to_headers(answer: Value) -> Option<Vec<(String, String)>> {
    let Value::Object(members) = answer else { return None };
    let header = |(name, value): (String, Value)| Some((name, value.as_str()?.to_owned()));
    members.into_iter().map(header).collect()
}

/// Requests for headers, for Python.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct HeaderRequests {
    receiver: Arc<Mutex<HeaderReceiver>>,
    shared: Arc<SharedHub>,
}

impl HeaderRequests {
    pub(crate) fn new(shared: &Arc<SharedHub>, receiver: HeaderReceiver) -> Self {
        Self { receiver: Arc::new(Mutex::new(receiver)), shared: shared.clone() }
    }
}

#[pymethods]
impl HeaderRequests {
    /// Waits for the next request. Returns `None` when the hub is closed.
    fn next(&self) -> Operation {
        let (receiver, mut closed) = (self.receiver.clone(), self.shared.closed.subscribe());
        Operation::new(&self.shared, None, async move {
            let mut receiver = receiver.lock().await;
            Ok(NextRequest(tokio::select! {
                biased;
                request = receiver.recv() => request,
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

impl fmt::Debug for HeaderRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeaderRequests")
    }
}

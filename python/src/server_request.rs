//! Requests of servers that Python handlers answer.

use std::fmt;

use pyo3::prelude::*;
use serde_json::Value;
use stayput::{Error, Handlers};
use stayput_sync::Mutex;
use tokio::sync::oneshot;

use crate::{
    error::to_exception,
    message::{CALLER, FallbackCaller, Payload, PendingRequest},
};

/// Request of a server, for Python.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct ServerRequest {
    kind: &'static str,
    params: String,
    answer: Mutex<Option<oneshot::Sender<Result<Value, String>>>>,
}

impl ServerRequest {
    pub(crate) fn new(request: PendingRequest) -> Self {
        let PendingRequest { kind, params, answer, .. } = request;
        Self { kind, params, answer: Mutex::new(Some(answer)) }
    }

    fn send(&self, answer: Result<Value, String>) {
        if let Some(sender) = self.answer.lock().take() {
            // Fails if the call has ended.
            let _ = sender.send(answer);
        }
    }
}

#[pymethods]
impl ServerRequest {
    /// Kind of its handler: `elicitation`, `sampling` or `roots`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.kind
    }

    /// Parameters as JSON.
    #[getter]
    fn params(&self) -> &str {
        &self.params
    }

    /// Answers the request with JSON.
    fn answer(&self, json: &str) -> PyResult<()> {
        let answer = serde_json::from_str(json).map_err(|error| {
            to_exception(&Error::InvalidInput(format!("the answer is no JSON: {error}")))
        })?;
        self.send(Ok(answer));
        Ok(())
    }

    /// Refuses the request with a message.
    fn refuse(&self, message: String) {
        self.send(Err(message));
    }
}

/// Creates handlers of these kinds that forward to Python.
pub(crate) fn handlers(
    kinds: &[String],
    hub: u64,
    fallback: &FallbackCaller,
) -> Result<Handlers, Error> {
    let mut handlers = Handlers::default();
    for kind in kinds {
        let fallback = fallback.clone();
        let handler = move |kind| {
            let fallback = fallback.clone();
            move |params| forward(kind, params, hub, fallback.clone())
        };
        handlers = match kind.as_str() {
            "elicitation" => handlers.elicitation(handler("elicitation")),
            "sampling" => handlers.sampling(handler("sampling")),
            "roots" => handlers.roots(handler("roots")),
            other => {
                let message = format!(
                    "handlers exist for `elicitation`, `sampling` and `roots`, not for `{other}`"
                );
                return Err(Error::InvalidInput(message));
            }
        };
    }
    Ok(handlers)
}

async fn forward(
    kind: &'static str,
    params: Value,
    hub: u64,
    fallback: FallbackCaller,
) -> Result<Value, String> {
    let caller = CALLER.try_with(Clone::clone).ok().or_else(|| fallback.lock().clone());
    let unavailable = || "there is no caller that can answer".to_owned();
    let (answer, answered) = oneshot::channel();
    let request = PendingRequest { hub, kind, params: params.to_string(), answer };
    caller.ok_or_else(unavailable)?.send(Payload::Request(request));
    answered.await.unwrap_or_else(|_| Err(unavailable()))
}

impl fmt::Debug for ServerRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the parameters, which may hold secrets.
        write!(f, "ServerRequest({})", self.kind)
    }
}

//! Events of sessions, for Python.

use std::{fmt, sync::Arc};

use pyo3::prelude::*;
use stayput::Event;
use tokio::sync::Mutex;

use crate::{error::exit_code, operation::Operation, shared_hub::SharedHub, value::IntoPython};

/// Subscription to events.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Events {
    events: Arc<Mutex<stayput::Events>>,
    shared: Arc<SharedHub>,
}

impl Events {
    pub(crate) fn new(shared: &Arc<SharedHub>, events: stayput::Events) -> Self {
        Self { events: Arc::new(Mutex::new(events)), shared: shared.clone() }
    }
}

#[pymethods]
impl Events {
    /// Waits for the next event. Returns `None` when the hub is closed.
    fn next(&self) -> Operation {
        let (events, mut closed) = (self.events.clone(), self.shared.closed.subscribe());
        Operation::new(&self.shared, None, async move {
            let mut events = events.lock().await;
            Ok(NextEvent(tokio::select! {
                biased;
                event = events.next() => event,
                _ = closed.wait_for(|closed| *closed) => None,
            }))
        })
    }
}

struct NextEvent(Option<Event>);

impl IntoPython for NextEvent {
    /// Tuple of kind, session, server, generation and reason, name, exit code, detail, tool and duration.
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        type Call = (Option<String>, Option<f64>);
        type Ending = (Option<&'static str>, Option<String>, Option<i32>, String, Call);
        type Tuple = (&'static str, String, Option<String>, Option<u64>, Ending);
        let tuple: Tuple = match self.0 {
            Some(Event::Linked { session, name, server, generation }) => {
                let ending = (None, name, None, String::new(), (None, None));
                ("linked", session.to_string(), Some(server), Some(generation.0), ending)
            }
            Some(Event::Lost {
                session,
                name,
                server,
                generation,
                reason,
                exit_status,
                detail,
            }) => {
                let exit_code = exit_status.and_then(exit_code);
                let ending = (Some(reason), name, exit_code, detail, (None, None));
                ("lost", session.to_string(), server, Some(generation.0), ending)
            }
            Some(Event::Ended { session, name }) => {
                let ending = (None, name, None, String::new(), (None, None));
                ("ended", session.to_string(), None, None, ending)
            }
            Some(Event::Called { session, name, server, tool, duration, error }) => {
                let call = (Some(tool), Some(duration.as_secs_f64()));
                let ending = (error, name, None, String::new(), call);
                ("called", session.to_string(), Some(server), None, ending)
            }
            Some(_) => {
                let ending = (None, None, None, String::new(), (None, None));
                ("unknown", String::new(), None, None, ending)
            }
            None => return Ok(py.None()),
        };
        Ok(tuple.into_pyobject(py)?.into_any().unbind())
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

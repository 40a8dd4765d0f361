//! What happens to sessions.

use std::{fmt, sync::Arc};

use pyo3::prelude::*;
use stayput::Event;
use tokio::sync::Mutex;

use crate::{keep::Keep, op::Op, value::Value};

/// What happens from now on.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Events {
    events: Arc<Mutex<stayput::Events>>,
    keep: Arc<Keep>,
}

impl Events {
    pub(crate) fn new(keep: &Arc<Keep>, events: stayput::Events) -> Self {
        Self { events: Arc::new(Mutex::new(events)), keep: keep.clone() }
    }
}

#[pymethods]
impl Events {
    /// What happens next; nothing when the hub was closed.
    fn next(&self) -> Op {
        let (events, mut over) = (self.events.clone(), self.keep.over.subscribe());
        Op::new(&self.keep, None, async move {
            let mut events = events.lock().await;
            Ok(Next(tokio::select! {
                biased;
                event = events.next() => event,
                _ = over.wait_for(|over| *over) => None,
            }))
        })
    }
}

struct Next(Option<Event>);

impl Value for Next {
    /// Kind, session, server, generation, reason.
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        type Told = (&'static str, String, Option<String>, Option<u64>, Option<&'static str>);
        let told: Told = match self.0 {
            Some(Event::Linked { session, server, generation }) => {
                ("linked", session.to_string(), Some(server), Some(generation.0), None)
            }
            Some(Event::Lost { session, server, generation, reason }) => {
                ("lost", session.to_string(), server, Some(generation.0), Some(reason))
            }
            Some(Event::Ended { session }) => ("ended", session.to_string(), None, None, None),
            Some(_) => ("unknown", String::new(), None, None, None),
            None => return Ok(py.None()),
        };
        Ok(told.into_pyobject(py)?.into_any().unbind())
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

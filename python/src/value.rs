//! Conversion of results to Python objects.

use pyo3::{
    prelude::*,
    types::{PyList, PyString, PyTuple},
};
use serde_json::value::RawValue;
use stayput::{CallResult, CloseReport, SessionInfo, SessionStatus, ToolResult};

/// Result that becomes a Python object on the thread of the caller: the hub's thread never enters the interpreter.
pub(crate) trait IntoPython: Send + 'static {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

impl IntoPython for () {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}

impl IntoPython for bool {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.into_pyobject(py)?.to_owned().into_any().unbind())
    }
}

impl IntoPython for String {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(PyString::new(py, &self).into_any().unbind())
    }
}

impl IntoPython for Vec<String> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(PyList::new(py, self)?.into_any().unbind())
    }
}

impl IntoPython for ToolResult {
    /// The raw JSON and `after_loss`. Python decodes the JSON.
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let raw = PyString::new(py, self.raw());
        Ok((raw, self.after_loss()).into_pyobject(py)?.into_any().unbind())
    }
}

impl IntoPython for CallResult {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(PyString::new(py, self.raw()).into_any().unbind())
    }
}

impl IntoPython for Vec<Box<RawValue>> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(PyList::new(py, self.iter().map(|item| item.get()))?.into_any().unbind())
    }
}

impl IntoPython for SessionInfo {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let expires = self.expires.map(|at| at.as_millis());
        let times = (self.created.as_millis(), self.last_used.as_millis(), expires);
        let info = (self.id.to_string(), self.name, self.agent, times, self.generation.0);
        Ok(info.into_pyobject(py)?.into_any().unbind())
    }
}

impl IntoPython for Vec<SessionInfo> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let all: PyResult<Vec<_>> = self.into_iter().map(|info| info.into_python(py)).collect();
        Ok(PyList::new(py, all?)?.into_any().unbind())
    }
}

impl IntoPython for CloseReport {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let report = (self.opened, self.sessions, self.links, self.killed);
        Ok(report.into_pyobject(py)?.into_any().unbind())
    }
}

/// Converts a status to a tuple: state, generation, calls in flight, reason, seconds until the next try.
pub(crate) fn status(py: Python<'_>, status: SessionStatus) -> PyResult<Bound<'_, PyTuple>> {
    type Tuple<'a> = (&'a str, Option<u64>, usize, Option<&'a str>, Option<f64>);
    let tuple: Tuple<'_> = match status {
        SessionStatus::Opening => ("opening", None, 0, None, None),
        SessionStatus::Live { generation, in_flight } => {
            ("live", Some(generation.0), in_flight, None, None)
        }
        SessionStatus::Closed { reason } => ("closed", None, 0, Some(reason), None),
        SessionStatus::BackingOff { retry_after } => {
            ("backing_off", None, 0, None, Some(retry_after.as_secs_f64()))
        }
        _ => ("unlinked", None, 0, None, None),
    };
    tuple.into_pyobject(py)
}

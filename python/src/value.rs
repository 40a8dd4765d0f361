//! What comes back, as Python has it.

use pyo3::{
    prelude::*,
    types::{PyList, PyString, PyTuple},
};
use serde_json::value::RawValue;
use stayput::{Info, Reply, Report, Status, ToolResult};

/// Something that becomes a Python object where it is fetched: the hub's thread never enters the interpreter.
pub(crate) trait Value: Send + 'static {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

impl Value for () {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}

impl Value for bool {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.into_pyobject(py)?.to_owned().into_any().unbind())
    }
}

impl Value for String {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(PyString::new(py, &self).into_any().unbind())
    }
}

impl Value for Vec<String> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(PyList::new(py, self)?.into_any().unbind())
    }
}

impl Value for ToolResult {
    /// What the server wrote, and whether it was after a loss. Nothing of it is decoded here.
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let raw = PyString::new(py, self.raw());
        Ok((raw, self.after_loss()).into_pyobject(py)?.into_any().unbind())
    }
}

impl Value for Reply {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(PyString::new(py, self.raw()).into_any().unbind())
    }
}

impl Value for Vec<Box<RawValue>> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(PyList::new(py, self.iter().map(|one| one.get()))?.into_any().unbind())
    }
}

impl Value for Info {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let expires = self.expires.map(|at| at.as_millis());
        let times = (self.created.as_millis(), self.last_used.as_millis(), expires);
        let info = (self.id.to_string(), self.name, self.agent, times, self.generation.0);
        Ok(info.into_pyobject(py)?.into_any().unbind())
    }
}

impl Value for Report {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let report = (self.opened, self.sessions, self.links, self.killed);
        Ok(report.into_pyobject(py)?.into_any().unbind())
    }
}

/// How a server stands: in one word, generation, calls in flight, reason, seconds.
pub(crate) fn status(py: Python<'_>, status: Status) -> PyResult<Bound<'_, PyTuple>> {
    type Told<'a> = (&'a str, Option<u64>, usize, Option<&'a str>, Option<f64>);
    let told: Told<'_> = match status {
        Status::Opening => ("opening", None, 0, None, None),
        Status::Live { generation, in_flight } => {
            ("live", Some(generation.0), in_flight, None, None)
        }
        Status::Over { reason } => ("over", None, 0, Some(reason), None),
        Status::Resting { pause } => ("resting", None, 0, None, Some(pause.as_secs_f64())),
        _ => ("unlinked", None, 0, None, None),
    };
    told.into_pyobject(py)
}

//! What can go wrong, as exceptions of `stayput`.

use pyo3::{prelude::*, sync::PyOnceLock, types::PyDict};
use stayput::Error;

/// `stayput._errors.made`, which knows the class of each kind.
static MADE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The exception for an error.
pub(crate) fn raised(error: &Error) -> PyErr {
    Python::attach(|py| exception(py, error).unwrap_or_else(|broken| broken))
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let made = MADE.get_or_try_init(py, || {
        PyResult::Ok(py.import("stayput._errors")?.getattr("made")?.unbind())
    })?;
    let details = details(py, error)?;
    let exception = made.bind(py).call1((error.kind(), error.to_string(), details))?;
    Ok(PyErr::from_value(exception))
}

/// What programs want to know, by the names that the exceptions have for it.
fn details<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyDict>> {
    let details = PyDict::new(py);
    details.set_item("may_have_run", error.may_have_run())?;
    match error {
        Error::StateLost(lost) => {
            details.set_item("server", lost.server())?;
            details.set_item("generation", lost.generation().0)?;
            details.set_item("reason", lost.reason())?;
        }
        Error::Refused { server, code, raw, .. } => {
            details.set_item("server", server)?;
            details.set_item("code", code)?;
            details.set_item("raw", &**raw)?;
        }
        Error::UnknownServer { server, .. }
        | Error::Denied { server }
        | Error::ToolDenied { server, .. }
        | Error::ServerFailed { server, .. }
        | Error::CallFailed { server, .. }
        | Error::Unanswered { server, .. } => details.set_item("server", server)?,
        Error::Ended { session } => details.set_item("session", session.to_string())?,
        Error::Taken { name } => details.set_item("name", name)?,
        _ => {}
    }
    Ok(details)
}

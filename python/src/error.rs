//! Conversion of errors to Python exceptions.

use pyo3::{prelude::*, sync::PyOnceLock, types::PyDict};
use stayput::{Error, ExitStatus};

/// `stayput._errors.make_error`, which maps the kind of an error to its class.
static MAKE_ERROR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Converts an error to its exception.
pub(crate) fn to_exception(error: &Error) -> PyErr {
    Python::attach(|py| exception(py, error).unwrap_or_else(|broken| broken))
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let make_error = MAKE_ERROR.get_or_try_init(py, || {
        PyResult::Ok(py.import("stayput._errors")?.getattr("make_error")?.unbind())
    })?;
    let details = details(py, error)?;
    let exception = make_error.bind(py).call1((error.kind(), error.to_string(), details))?;
    Ok(PyErr::from_value(exception))
}

/// Attributes of the exception.
fn details<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyDict>> {
    let details = PyDict::new(py);
    details.set_item("may_have_run", error.may_have_run())?;
    details.set_item("retry_after", error.retry_after().map(|delay| delay.as_secs_f64()))?;
    match error {
        Error::StateLost(lost) => {
            details.set_item("server", lost.server())?;
            details.set_item("generation", lost.generation().0)?;
            details.set_item("reason", lost.reason())?;
            details.set_item("exit_code", lost.exit_status().and_then(exit_code))?;
            details.set_item("detail", lost.detail())?;
        }
        Error::ProtocolError { server, code, raw, .. } => {
            details.set_item("server", server)?;
            details.set_item("code", code)?;
            details.set_item("raw", &**raw)?;
        }
        Error::UnknownServer { server, .. }
        | Error::ServerDenied { server }
        | Error::ToolDenied { server, .. }
        | Error::ServerFailed { server, .. }
        | Error::CallFailed { server, .. }
        | Error::InputRequired { server, .. } => details.set_item("server", server)?,
        Error::SessionEnded { session } => details.set_item("session", session.to_string())?,
        Error::NameTaken { name } => details.set_item("name", name)?,
        _ => {}
    }
    Ok(details)
}

/// Exit code of a process, or minus the signal that killed it, as Python's `subprocess` has it.
pub(crate) fn exit_code(status: ExitStatus) -> Option<i32> {
    match status {
        ExitStatus::Code(code) => Some(code),
        ExitStatus::Signal(signal) => Some(-signal),
        _ => None,
    }
}

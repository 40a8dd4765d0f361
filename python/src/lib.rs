//! Native half of the Python wheel `stayput`: the hub of the Rust library. Python objects hold only handles.
//!
//! A hub runs on its own thread, which never enters the interpreter. A request to it is an
//! [`operation::Operation`]; its messages wait in a [`mailbox::Mailbox`] until the caller's event loop fetches
//! them, or wake the thread that waits for them. So the interpreter lock is never held while something waits, and
//! nothing here runs after the interpreter has ended.

mod callback_channel;
mod callback_request;
mod error;
mod event;
mod hub;
mod keeper;
mod log;
mod mailbox;
mod message;
mod notifications;
mod operation;
mod scope;
mod server_request;
mod session;
mod shared_hub;
mod value;

/// See `_core.pyi`.
#[pyo3::pymodule]
mod _core {
    /// Version of the package.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python uses")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use crate::{
        callback_request::CallbackRequests,
        event::Events,
        hub::Hub,
        log::{LogRecords, start_log, stop_log},
        mailbox::Mailbox,
        notifications::Notifications,
        operation::Operation,
        scope::{Run, Scope},
        server_request::ServerRequest,
        session::Session,
        shared_hub::close_all,
    };
}

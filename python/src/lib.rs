//! Native half of the Python wheel `stayput`: the hub of the Rust library. Python objects hold only handles.
//!
//! A hub runs on its own thread, which never enters the interpreter. A request to it is an
//! [`operation::Operation`]; its messages wait in a [`mailbox::Mailbox`] until the caller's event loop fetches
//! them, or wake the thread that waits for them. So the interpreter lock is never held while something waits, and
//! nothing here runs after the interpreter has ended.

mod error;
mod event;
mod header_request;
mod hub;
mod mailbox;
mod message;
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
        event::Events,
        header_request::HeaderRequests,
        hub::Hub,
        mailbox::Mailbox,
        operation::Operation,
        scope::{Run, Scope},
        server_request::ServerRequest,
        session::Session,
        shared_hub::close_all,
    };
}

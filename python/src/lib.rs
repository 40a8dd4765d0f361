//! The native half of the Python wheel `stayput`: the hub of the library for agents, with Python holding only keys.
//!
//! Everything lives on the hub's own thread, which never enters the interpreter. What is asked of it is an
//! [`op::Op`]; what comes back waits in a [`mailbox::Mailbox`] until the event loop of whoever asked fetches it, or
//! wakes the thread that waits for it. So the lock of the interpreter is never held while something is waited for,
//! and nothing here can run after the interpreter has ended.

mod error;
mod event;
mod hub;
mod keep;
mod mailbox;
mod message;
mod op;
mod question;
mod scope;
mod session;
mod value;

/// See `_core.pyi`.
#[pyo3::pymodule]
mod _core {
    #[pymodule_export]
    use crate::{
        event::Events,
        hub::Hub,
        keep::farewell,
        mailbox::Mailbox,
        op::Op,
        question::Question,
        scope::{Run, Scope},
        session::Session,
    };
}

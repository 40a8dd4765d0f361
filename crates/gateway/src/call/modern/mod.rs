//! Calls of clients that speak 2026-07-28.

pub(crate) mod answer;
pub(crate) mod bridge;
pub(crate) mod call_stream;
pub(crate) mod client_call;
pub(crate) mod request;
pub(crate) mod session;
pub(crate) mod state;
pub(crate) mod validate;

//! Small helpers: locks, flags, backoff.

pub(crate) mod backoff;
pub(crate) mod flag;
pub(crate) mod lock;

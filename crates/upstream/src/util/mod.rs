//! Small helpers: flags, backoff.

pub(crate) mod backoff;
pub(crate) mod flag;

//! Conversion of requests and answers for clients that speak 2026-07-28.

pub(crate) mod answer;
pub(crate) mod bridge;
pub(crate) mod validate;

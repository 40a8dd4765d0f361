//! Session names in a request: where they can be, and which session they refer to.

pub(crate) mod headers;
pub(crate) mod source;

pub(crate) use self::{
    headers::RequestHeaders,
    source::{RequestNames, SessionRef, connection_hash},
};

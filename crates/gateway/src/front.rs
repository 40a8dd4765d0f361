//! Where clients come in.

pub(crate) mod door;
pub(crate) mod http;
pub(crate) mod lanes;
pub(crate) mod lines;
mod local;
mod metadata;
mod plain;
mod post;
pub(crate) mod socket;
pub(crate) mod sse;
pub(crate) mod stdio;

//! Where clients come in.

pub(crate) mod door;
pub(crate) mod http;
pub(crate) mod lines;
mod local;
mod metadata;
mod post;
pub(crate) mod socket;
pub(crate) mod sse;
pub(crate) mod stdio;

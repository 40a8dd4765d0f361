//! Where clients come in.

pub(crate) mod door;
pub(crate) mod http;
mod metadata;
mod post;
pub(crate) mod sse;

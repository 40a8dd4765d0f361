//! Where clients come in.

pub(crate) mod http;
mod post;

//! Listeners for clients: HTTP, SSE, standard input and output, and the Unix socket.

pub(crate) mod acceptor;
pub(crate) mod access;
mod batch;
pub(crate) mod child_stderr;
mod forward;
mod home_page;
pub(crate) mod host_check;
mod http;
pub(crate) mod legacy_sse;
pub(crate) mod lines;
mod local_http;
mod message_forward;
mod page_login;
mod post;
pub(crate) mod proxy_handshake;
mod refusal;
mod replica_requests;
mod router;
mod sockets;
pub(crate) mod stdio;
pub(crate) mod unix_socket;
mod well_known;
pub(crate) mod workers;

//! Connections of clients: their protocol state, open streams and pending server requests.

pub(crate) mod connection;
pub(crate) mod deliver;
pub(crate) mod event_stream;
pub(crate) mod legacy_clients;
pub(crate) mod question_ids;
pub(crate) mod registry;
pub(crate) mod stream_cache;

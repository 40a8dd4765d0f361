//! Messages that belong to no call: notifications of clients, messages of servers, subscriptions.

mod end_connection;
pub(crate) mod listen_stream;
pub(crate) mod notifications;
pub(crate) mod relay;
pub(crate) mod subscriptions;

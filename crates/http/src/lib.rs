//! HTTP client for MCP servers: one request, the head of its response, then its body chunk by chunk.
//!
//! It knows HTTP and not MCP. Beyond sending bytes it promises two things that a session gateway needs and most
//! clients do not offer: it says whether a failed request can have been executed ([`HttpError::delivery`]), and
//! credentials stay at the origin they were meant for.
//!
//! HTTP/1.1 only: MCP servers speak it everywhere, and one broken connection then breaks one request, not all
//! of them. Nothing is decompressed, because no `Accept-Encoding` is sent.
//!
//! | file | content |
//! |---|---|
//! | `client.rs`, `request.rs`, `redirect.rs` | [`Client`]: sends a [`Request`] and follows redirects |
//! | `body.rs` | [`Body`] of a [`Response`] |
//! | `target.rs`, `basic.rs` | [`Target`]: a checked URL, and the credentials in it |
//! | `settings.rs`, `trust.rs`, `proxy.rs` | [`ClientSettings`]: trusted authorities, proxy, timeouts |
//! | `dial.rs`, `stream.rs` | new connections: TCP, proxy, TLS |
//! | `plain.rs`, `plain/` | HTTP/1.1 without TLS and proxy; `idle.rs`: connections for the next request |
//! | `worker.rs` | [`Worker`]: thread whose calls use their own connections |
//! | `error.rs`, `delivery.rs` | [`HttpError`]: message, kind, [`Delivery`] |
//!
//! # Limits
//!
//! Opening a connection, waiting for the response head, and waiting for each chunk have a time limit each. A
//! response head may have 100 headers and about 400 KiB; a body is collected up to a limit that the caller
//! gives. Few idle connections are kept, and they are closed after a while.

mod basic;
mod body;
mod client;
mod delivery;
mod dial;
mod error;
mod plain;
mod proxy;
mod redirect;
mod request;
mod settings;
mod stream;
mod target;
mod trust;
mod worker;

pub use body::Body;
pub use client::{Client, Response};
pub use delivery::Delivery;
pub use error::{ClientError, HttpError, HttpErrorKind, Phase, rounded};
pub use proxy::Proxy;
pub use request::Request;
pub use settings::ClientSettings;
pub use target::{Target, TargetError};
pub use trust::Trust;
pub use worker::Worker;

//! HTTP as links need it: one request, the head of its answer, then its body chunk by chunk.
//!
//! It knows HTTP and not MCP. What it promises beyond sending bytes is what a session keeper must know
//! and most clients do not tell: whether a request that failed can have been executed
//! ([`HttpError::delivery`]), and that credentials stay at the origin they were meant for.
//!
//! HTTP/1.1 only: MCP servers speak it everywhere, and one broken connection then breaks one request,
//! not all of them. Nothing is decompressed, because no `Accept-Encoding` is sent.
//!
//! | file | what it is about |
//! |---|---|
//! | `client.rs`, `request.rs`, `redirect.rs` | [`Client`]: sends a [`Request`] and follows where it may |
//! | `body.rs` | [`Body`]: what comes after the head of a [`Response`] |
//! | `target.rs`, `basic.rs` | [`Target`]: a checked URL, and the credentials in it |
//! | `settings.rs`, `trust.rs`, `proxy.rs` | [`ClientSettings`]: whom to trust, by what way to go, how long |
//! | `dial.rs`, `stream.rs` | a new connection: TCP, proxy, TLS |
//! | `plain.rs`, `plain/` | HTTP/1.1 over connections with neither encryption nor a proxy; [`Chunks`] are read the same way by who serves it |
//! | `error.rs` | [`HttpError`]: a sentence, a kind, a delivery |
//!
//! # What is bounded
//!
//! Making a connection, waiting for the head of an answer, and waiting for each chunk of it have a
//! time limit each. The head of an answer may have 100 headers and about 400 KiB; a body is collected
//! up to a limit that the caller gives. Idle connections are few and closed after a while.

mod basic;
mod body;
mod client;
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

pub use body::Body;
pub use client::{Client, Response};
pub use error::{HttpError, HttpErrorKind, Phase};
pub use plain::{Chunks, Piece};
pub use proxy::Proxy;
pub use request::Request;
pub use settings::{ClientError, ClientSettings};
pub use target::{Target, TargetError};
pub use trust::Trust;

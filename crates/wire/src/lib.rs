//! Wire format of MCP, without I/O.
//!
//! Stayput passes messages on between clients and servers. It does not decode them: it copies their bytes, and
//! replaces only those that must change. This crate parses messages without decoding them, edits them in place,
//! splits streams into messages, and defines the names and numbers of the protocol.
//!
//! | file | content |
//! |---|---|
//! | `message.rs`, `id.rs`, `batch.rs` | [`Message`]: request, notification, response or error, as written; [`Id`]; [`Batch`] |
//! | `splice.rs` | [`Edits`]: sets and removes members, and keeps all other bytes |
//! | `raw.rs`, `span.rs`, `json.rs` | [`Raw`]: value as written; [`span`]: position of a member; [`json`]: syntax |
//! | `framing.rs`, `sse.rs` | [`LineSplitter`] for stdio, [`sse`] for HTTP, for chunks of any size |
//! | `header.rs`, `param.rs`, `percent.rs` | [`header`]: HTTP headers; [`ParamHeaders`]: arguments as headers; [`percent`]: percent-encoding |
//! | `meta.rs`, `code.rs`, `version.rs` | keys of [`_meta`](meta), [`Code`]s of errors, [`Version`]s and [`Era`]s |
//!
//! # Rewriting a message
//!
//! The call gets another id and a key in `_meta`, and loses the argument that was meant for Stayput. The number
//! `1.10`, the white space and the unknown member are unchanged.
//!
//! ```
//! use stayput_wire::{Message, meta};
//!
//! let text = br#"{ "jsonrpc": "2.0", "id": "a\/1", "x": 1.10, "method": "tools/call",
//!   "params": { "name": "add", "arguments": { "session_id": "key:chat", "price": 1.10 } } }"#;
//!
//! let message = Message::parse(text)?;
//! let (id, params) = (message.id().unwrap(), message.params().unwrap());
//! let mut edits = message.edit();
//! edits
//!     .replace(id.raw(), "17")
//!     .set_in(params, &[meta::META, meta::PROGRESS_TOKEN], "17")
//!     .remove_in(params, &["arguments", "session_id"]);
//!
//! assert_eq!(
//!     edits.apply()?,
//!     r#"{ "jsonrpc": "2.0", "id": 17, "x": 1.10, "method": "tools/call",
//!   "params": { "name": "add", "arguments": { "price": 1.10 },"_meta":{"progressToken":17} } }"#
//! );
//! assert_eq!(id.as_str(), r#""a\/1""#, "to be sent back unchanged");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Out of scope
//!
//! It has no types for tools, results or capabilities: they change with every revision, and unknown fields must not
//! get lost. It uses no sockets, processes, clocks or async. Sessions are in `stayput-core`.
//!
//! # Limits
//!
//! Input is untrusted. Nothing recurses over its nesting, which is limited to [`json::MAX_DEPTH`]. A message has at
//! most [`Message::MAX_BYTES`] bytes, and stream splitters take a limit. Errors and `Debug` do not show content,
//! except for ids.

mod batch;
mod code;
mod framing;
pub mod header;
mod id;
pub mod json;
mod message;
pub mod meta;
mod param;
pub mod percent;
mod raw;
pub mod span;
mod splice;
pub mod sse;
mod version;

pub use batch::Batch;
pub use code::Code;
pub use framing::{LineSplitter, LineTooLong, end_line};
pub use id::{Id, IdBuf, InvalidId};
pub use message::{Message, MessageError, MessageKind, MessageProblem, TrimmedMessage};
pub use param::{InvalidMark, InvalidParam, MarkProblem, ParamHeaders, ParamProblem};
pub use raw::Raw;
pub use splice::{EditError, Edits};
pub use version::{Era, Version};

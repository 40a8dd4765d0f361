//! The bytes of MCP, without I/O.
//!
//! A session keeper stands between clients and servers and passes on what they say. What it does not
//! have to understand it passes on byte for byte; where it has to change something, it replaces the
//! few bytes that change. This crate reads messages without decoding them, edits them in place, cuts
//! streams into messages, and has every name and number of the protocol once.
//!
//! | file | what it is about |
//! |---|---|
//! | `message.rs`, `id.rs`, `batch.rs` | [`Message`]: request, notification, response or error, as it was written; [`Id`]; [`Batch`] |
//! | `splice.rs` | [`Edits`]: set, remove and rename members, every other byte as it was |
//! | `raw.rs`, `span.rs`, `json.rs` | [`Raw`]: a value where it stands; [`span`]: where a member stands; [`json`]: what is well-formed |
//! | `framing.rs`, `sse.rs` | [`LineSplitter`] for stdio, [`sse`] for HTTP, fed with chunks of any size |
//! | `header.rs`, `param.rs`, `percent.rs` | [`header`]: names and values of HTTP headers; [`ParamHeaders`]: arguments as headers; [`percent`]: texts as they stand in URLs |
//! | `meta.rs`, `code.rs`, `version.rs` | keys of [`_meta`](meta), [`Code`]s of errors, [`Version`]s and [`Era`]s |
//!
//! # Rewriting a message
//!
//! A call goes to a server under an id of ours, with a key in `_meta`, and without the argument that
//! was meant for us. The number `1.10`, the white space and the unknown member stay as they were.
//!
//! ```
//! use stayput_wire::{Message, meta};
//!
//! let said = br#"{ "jsonrpc": "2.0", "id": "a\/1", "x": 1.10, "method": "tools/call",
//!   "params": { "name": "add", "arguments": { "session_id": "key:chat", "price": 1.10 } } }"#;
//!
//! let message = Message::parse(said)?;
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
//! assert_eq!(id.as_str(), r#""a\/1""#, "to be sent back exactly so");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it is not
//!
//! No types for tools, results or capabilities: what they hold changes with every revision, and a
//! field that is not known must not get lost. No socket, no process, no clock, no async. No opinion
//! on sessions: that is `stayput-core`.
//!
//! # What is bounded
//!
//! Bytes come from strangers. Nothing here recurses over their nesting: it is limited to
//! [`json::DEPTH_LIMIT`]. A message has at most [`Message::SIZE_LIMIT`] bytes, and whoever cuts a
//! stream gives a limit. Nothing that was said is repeated in an error or in `Debug`, but for ids.

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
pub use message::{Cut, Kind, Message, MessageError, Problem};
pub use param::{InvalidMark, InvalidParam, MarkProblem, ParamHeaders, ParamProblem};
pub use raw::Raw;
pub use splice::{EditError, Edits};
pub use version::{Era, Version};

//! Session names in MCP requests: how a request says which session it means, and how a model gets a session to name.
//!
//! The gateway finds the session of requests to any server, the server library finds it for the tools of one server.
//! Both read the same names by the same rules, so both use this crate. It does no I/O, and knows neither connections
//! nor policies.
//!
//! There are four classes of names, in this order: an explicit name, a hint of the host, the session of the
//! connection, and a policy for requests without any of them. A higher class wins silently. Two different values inside
//! one class are an error. [`ExplicitNames`] is the first class, [`read_hints`] the second; the others belong to the
//! callers.
//!
//! ```
//! use stayput_core::Name;
//! use stayput_identify::{
//!     ArgumentName, ArgumentRule, ExplicitNames, HINT_SOURCES, MetaMembers, SessionArguments, read_hints,
//! };
//! use stayput_wire::Message;
//!
//! let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add",
//!     "arguments":{"price":1.10,"session_id":"key:chat-42"},"_meta":{"threadId":"t-1"}}}"#;
//! let message = Message::parse(text.as_bytes())?;
//! let members = MetaMembers::from_message(&message, &[]);
//!
//! let mut names = ExplicitNames::default();
//! if let Some(arguments) = SessionArguments::from_call(&message) {
//!     names.read_argument(arguments, ArgumentName::Plain, ArgumentRule::Added)?;
//! }
//! names.read_meta(&members)?;
//! assert!(matches!(names.first(), Some(Name::Key(key)) if key.as_str() == "name:chat-42"));
//! assert_eq!(names.conflicts().count(), 0);
//!
//! // The tool does not see the name.
//! let edit = names.edit(&message)?.ok_or("unchanged")?;
//! assert!(edit.text().contains(r#""arguments":{"price":1.10}"#));
//!
//! // Without the explicit name, the hint of the host would count.
//! let hint = read_hints(&HINT_SOURCES, &members)?.ok_or("no hint")?;
//! assert_eq!(hint.as_str(), "codex:t-1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Files
//!
//! | file or folder | content |
//! |---|---|
//! | `names.rs` | [`ExplicitNames`]: the names of a request, their conflicts, and the request without them |
//! | `argument.rs`, `meta.rs`, `header.rs`, `path.rs`, `custom.rs`, `cookie.rs`, `hint.rs` | one name source each |
//! | `json_value.rs` | [`JsonValue`]: a value as written, or parsed |
//! | `prefilter.rs` | fast check whether a body can contain a name |
//! | `edit.rs`, `tool_list.rs` | edits of requests, answers and tool lists |
//! | `tools/` | session tools: names, definitions, arguments, results |
//! | `text.rs` | sentences for the model |
//! | `error.rs` | [`NameError`] |

mod argument;
mod cookie;
mod custom;
mod edit;
mod error;
mod header;
mod hint;
mod json_value;
mod meta;
mod names;
mod path;
mod prefilter;
pub mod text;
mod tool_list;
pub mod tools;

pub use argument::{ArgumentName, ArgumentRule, SessionArguments};
pub use cookie::{Cookie, SameSite, read_cookie};
pub use custom::CustomSource;
pub use edit::{RequestEdit, add_handle, set_handle};
pub use error::NameError;
pub use hint::{HINT_SOURCES, read_hints};
pub use json_value::JsonValue;
pub use meta::MetaMembers;
pub use names::ExplicitNames;
pub use path::{InvalidPathKey, SplitPath};
pub use prefilter::may_name_session;
pub use tool_list::{SessionArgument, append_tools, tool_names};

//! Configuration files of MCP servers, read with errors that name the line.
//!
//! Servers are in `mcpServers` (VS Code: `servers`, Codex: `mcp_servers`, opencode: `mcp`), in the format that other programs use. Settings of Stayput are
//! in objects called `stayput`, which other programs ignore. An unknown key is an error there, and ignored elsewhere.
//!
//! [`Servers::load`] reads the servers of a file. A program with its own settings in the file reads them as
//! [`ConfigValue`]s of the [`Document`].
//!
//! | file | content |
//! |---|---|
//! | `document.rs`, `jsonc.rs`, `value.rs`, `units.rs` | file as written; JSON with comments; value with its path; durations and sizes |
//! | `servers.rs`, `transport.rs`, `server_options.rs`, `keys.rs` | servers; command or URL; options under `stayput`; known keys |
//! | `tool_filter.rs`, `claim_filter.rs` | tools that clients may call; claims that an owner needs |
//! | `expand.rs`, `environment.rs`, `env_file.rs` | expansion of `${…}`; source of its values; environment files |
//! | `client_file/` | files of MCP clients: places, lists of servers, edits by `stayput install`; TOML |
//! | `error.rs` | errors, each with its place in the file |

mod claim_filter;
mod client_file;
mod document;
mod env_file;
mod environment;
mod error;
mod expand;
mod jsonc;
pub mod keys;
mod server_options;
mod servers;
mod tool_filter;
mod transport;
mod units;
mod value;

pub use claim_filter::ClaimFilter;
pub use client_file::{Client, EditedServer, FileEdit, ServerChange, unwrap_servers, wrap_servers};
pub use document::Document;
pub use environment::Environment;
pub use error::{ConfigError, Problem};
pub use expand::ExpandContext;
pub use server_options::{Handles, OnLoss};
pub use servers::{ServerEntry, Servers};
pub use tool_filter::ToolFilter;
pub use value::{ConfigObject, ConfigValue, Member, ReadResult, ValueError};

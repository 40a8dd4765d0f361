//! The file of MCP servers that people already have, read with errors that name the line.
//!
//! Servers stand in `mcpServers` (VS Code: `servers`) as other programs write them. What is ours stands in
//! objects that are called `stayput`, so that no other program stumbles over it. There an unknown key is an
//! error; everywhere else it is somebody else's.
//!
//! [`Servers::load`] is for who wants the servers of a file. Who has settings of its own at the top of the file
//! reads them as [`Spot`]s of the [`Document`].

mod admission;
mod choices;
mod comments;
mod document;
mod entry;
mod env_file;
mod environment;
mod error;
mod expand;
pub mod keys;
mod servers;
mod spot;
mod tools;
mod units;

pub use admission::For;
pub use choices::{Handles, OnLoss};
pub use document::Document;
pub use environment::Environment;
pub use error::{ConfigError, Problem};
pub use expand::Around;
pub use servers::{Configured, Servers};
pub use spot::{Member, Read, Spot, Table, Wrong};
pub use tools::Tools;

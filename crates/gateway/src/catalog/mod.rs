//! Names, cursors, URI indexes and tool schemas: how lists of servers are presented to clients.

pub(crate) mod client_lists;
pub(crate) mod cursor;
pub(crate) mod index;
pub(crate) mod list;
pub(crate) mod list_cache;
pub(crate) mod names;
pub(crate) mod tool_view;
pub(crate) mod uri_template;

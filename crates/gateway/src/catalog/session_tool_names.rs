//! Names of the session tools, with a prefix where a server has a tool of the same name.

use bytes::Bytes;
use stayput_wire::Raw;

use crate::catalog::tool_argument;

/// Names without the prefix.
pub(crate) const NAMES: [&str; 5] =
    ["session_start", "session_info", "session_end", "session_list", "session_switch"];

/// Prefix of the names where a server has a tool with one of them.
pub(crate) const PREFIX: &str = "stayput_";

/// Name of a session tool.
pub(crate) fn name(tool: &str, prefixed: bool) -> String {
    if prefixed { format!("{PREFIX}{tool}") } else { tool.to_owned() }
}

/// Whether a server has a tool with the name of a session tool.
pub(crate) fn clash(pages: &[Bytes]) -> bool {
    let pages = pages.iter().filter_map(|page| tool_argument::list(str::from_utf8(page).ok()?));
    pages.flat_map(Raw::elements).any(|tool| {
        let name = tool.find(&["name"]).and_then(Raw::text);
        name.is_some_and(|name| NAMES.contains(&&*name))
    })
}

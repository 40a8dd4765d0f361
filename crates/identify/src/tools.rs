//! Session tools: tools of Stayput, listed with those of a server.

mod arguments;
mod definition;
mod reply;

pub use self::{
    arguments::{ToolArguments, ToolError},
    reply::{SessionView, ToolReply, chosen_name},
};

/// Prefix of the names where a server has a tool with one of them.
const PREFIX: &str = "stayput_";

/// Sessions that `session_list` returns at once.
pub const LIST_PAGE: usize = 100;

/// Session tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionTool {
    /// `session_start`: opens a session, and returns a handle.
    Start,
    /// `session_info`: describes the session of a call.
    Info,
    /// `session_end`: ends it.
    End,
    /// `session_list`: lists the sessions of the owner, or issues a handle for one of them.
    List,
    /// `session_switch`: changes the default session of a connection.
    Switch,
}

impl SessionTool {
    /// Tools that every client with handles needs.
    pub const BASIC: [Self; 3] = [Self::Start, Self::Info, Self::End];

    /// All tools.
    pub const ALL: [Self; 5] = [Self::Start, Self::Info, Self::End, Self::List, Self::Switch];

    const fn plain_name(self) -> &'static str {
        match self {
            Self::Start => "session_start",
            Self::Info => "session_info",
            Self::End => "session_end",
            Self::List => "session_list",
            Self::Switch => "session_switch",
        }
    }

    /// Returns the name. `prefixed` is set for a server with clashing tools, see [`SessionTool::clash`].
    #[must_use]
    pub fn name(self, prefixed: bool) -> String {
        format!("{}{}", if prefixed { PREFIX } else { "" }, self.plain_name())
    }

    /// Returns the tool of this name, and whether the name has the prefix.
    #[must_use]
    pub fn from_name(name: &str) -> Option<(Self, bool)> {
        let plain = name.strip_prefix(PREFIX);
        let tool = Self::ALL.into_iter().find(|it| it.plain_name() == plain.unwrap_or(name))?;
        Some((tool, plain.is_some()))
    }

    /// Returns whether a server has a tool with the name of a session tool. Then all session tools get the prefix, so
    /// that they are still seen as one group.
    pub fn clash(names: impl IntoIterator<Item = impl AsRef<str>>) -> bool {
        names.into_iter().any(|name| matches!(Self::from_name(name.as_ref()), Some((_, false))))
    }

    /// Returns whether the tool is only for clients with a connection: without one there is no default session.
    #[must_use]
    pub const fn needs_connection(self) -> bool {
        matches!(self, Self::Switch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_with_and_without_prefix() {
        for tool in SessionTool::ALL {
            for prefixed in [false, true] {
                assert_eq!(SessionTool::from_name(&tool.name(prefixed)), Some((tool, prefixed)));
            }
        }
        assert_eq!(SessionTool::from_name("stayput_stayput_session_info"), None);
        assert!(SessionTool::clash(["a", "session_list"]));
        assert!(!SessionTool::clash(["a", "stayput_session_list"]));
    }
}

//! Filter of a server's tools.

use std::{borrow::Cow, fmt};

use stayput_wire::{Edits, Raw};

/// Allowed and denied tools of a server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// Allowed tools; `None` allows all.
    pub allow: Option<Vec<String>>,
    /// Denied tools, even if they are allowed.
    pub deny: Vec<String>,
}

impl ToolFilter {
    /// Returns whether all tools are allowed.
    #[must_use]
    pub fn passes_all(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }

    /// Returns whether a tool is allowed.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        let among = |names: &[String]| names.iter().any(|other| other == name);
        self.allow.as_deref().is_none_or(among) && !among(&self.deny)
    }

    /// Removes tools that are not allowed from a `tools/list` result. A list that cannot be edited becomes empty.
    #[must_use]
    pub fn filter<'a>(&self, result: &'a str) -> Cow<'a, str> {
        if self.passes_all() {
            return result.into();
        }
        let list = Raw::parse(result).ok().and_then(|result| self.allowed_tools(result));
        let Some((list, allowed)) = list else { return result.into() };
        let mut edits = Edits::new(result);
        edits.replace(list, &allowed);
        edits.apply().unwrap_or_else(|_| r#"{"tools":[]}"#.into())
    }

    /// Returns the tool list of a result, and its allowed tools as JSON.
    #[must_use]
    pub fn allowed_tools<'a>(&self, result: Raw<'a>) -> Option<(Raw<'a>, String)> {
        let list = result.find(&["tools"]).filter(|list| list.is_array())?;
        let allowed = list.elements().filter(|tool| {
            let name = tool.find(&["name"]).and_then(Raw::text);
            name.is_some_and(|name| self.allows(&name))
        });
        let allowed: Vec<&str> = allowed.map(Raw::as_str).collect();
        Some((list, format!("[{}]", allowed.join(","))))
    }
}

/// Shows counts only, because names may come from the environment.
impl fmt::Debug for ToolFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allow = self.allow.as_ref().map(Vec::len);
        f.debug_struct("ToolFilter").field("allow", &allow).field("deny", &self.deny.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_tools_are_not_listed() {
        let list = r#"{"x":1.10,"tools":[{"name":"a","n":1.0},{"name":"b"},{"name":"c"}],"nextCursor":"z"}"#;
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let deny = ToolFilter { allow: None, deny: names(&["b"]) };
        assert_eq!(
            deny.filter(list),
            r#"{"x":1.10,"tools":[{"name":"a","n":1.0},{"name":"c"}],"nextCursor":"z"}"#
        );
        let allow = ToolFilter { allow: Some(names(&["b", "c"])), deny: names(&["c"]) };
        assert_eq!(allow.filter(list), r#"{"x":1.10,"tools":[{"name":"b"}],"nextCursor":"z"}"#);
        assert_eq!(ToolFilter::default().filter(list), list);
        assert!(allow.allows("b") && !allow.allows("c") && !allow.allows("a"));
    }
}

//! Which tools of a server may be seen and called.

use std::{borrow::Cow, fmt};

use stayput_wire::{Edits, Raw};

/// Which tools of a server are passed on.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tools {
    /// Only these, if it is there.
    pub allow: Option<Vec<String>>,
    /// None of these, whatever is allowed.
    pub deny: Vec<String>,
}

impl Tools {
    /// Whether everything is passed on as it is.
    #[must_use]
    pub fn passes_all(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }

    /// Whether a tool of this name is passed on.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        let among = |names: &[String]| names.iter().any(|other| other == name);
        self.allow.as_deref().is_none_or(among) && !among(&self.deny)
    }

    /// A result of `tools/list` without what is not passed on. What cannot be read is not shown at all.
    #[must_use]
    pub fn filter<'a>(&self, result: &'a str) -> Cow<'a, str> {
        if self.passes_all() {
            return result.into();
        }
        let list = Raw::parse(result).ok().and_then(|result| self.shown(result));
        let Some((list, shown)) = list else { return result.into() };
        let mut edits = Edits::new(result);
        edits.replace(list, &shown);
        edits.apply().unwrap_or_else(|_| r#"{"tools":[]}"#.into())
    }

    /// The tools of a list where they stand, and those that are passed on.
    #[must_use]
    pub fn shown<'a>(&self, result: Raw<'a>) -> Option<(Raw<'a>, String)> {
        let list = result.find(&["tools"]).filter(|list| list.is_array())?;
        let shown = list.elements().filter(|tool| {
            let name = tool.find(&["name"]).and_then(Raw::text);
            name.is_some_and(|name| self.allows(&name))
        });
        let shown: Vec<&str> = shown.map(Raw::as_str).collect();
        Some((list, format!("[{}]", shown.join(","))))
    }
}

/// How many, and not which: names may come from the environment.
impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allow = self.allow.as_ref().map(Vec::len);
        f.debug_struct("Tools").field("allow", &allow).field("deny", &self.deny.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_denied_is_not_listed() {
        let list = r#"{"x":1.10,"tools":[{"name":"a","n":1.0},{"name":"b"},{"name":"c"}],"nextCursor":"z"}"#;
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let deny = Tools { allow: None, deny: names(&["b"]) };
        assert_eq!(
            deny.filter(list),
            r#"{"x":1.10,"tools":[{"name":"a","n":1.0},{"name":"c"}],"nextCursor":"z"}"#
        );
        let allow = Tools { allow: Some(names(&["b", "c"])), deny: names(&["c"]) };
        assert_eq!(allow.filter(list), r#"{"x":1.10,"tools":[{"name":"b"}],"nextCursor":"z"}"#);
        assert_eq!(Tools::default().filter(list), list);
        assert!(allow.allows("b") && !allow.allows("c") && !allow.allows("a"));
    }
}

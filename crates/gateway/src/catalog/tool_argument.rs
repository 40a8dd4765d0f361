//! Session argument that the gateway adds to the tools of a server.

use std::borrow::Cow;

use bytes::Bytes;
use stayput_wire::{Edits, Raw, json};

/// Name of the argument.
pub(crate) const ARGUMENT: &str = "session_id";

/// Name of the argument on a server that has a tool with its own `session_id`.
pub(crate) const OWN_ARGUMENT: &str = "stayput_session_id";

/// Description that a model reads.
const DESCRIPTION: &str = "Session of this conversation (sp_…), as it was given to you in an earlier \
                           result. Pass the same one in every call, and keep it; leave it out only if \
                           you have none.";

/// Session argument of a server's tools. Determined once per profile, so that all pages and all clients see the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    name: &'static str,
    /// Tools that do not show the argument, because their schema has no place for it.
    left: Vec<String>,
}

impl Argument {
    /// Determines the argument for the tools on these pages.
    pub(crate) fn of(pages: &[Bytes]) -> Self {
        let tools = || pages.iter().filter_map(|page| tools(str::from_utf8(page).ok()?)).flatten();
        let taken = tools().any(|tool| property(tool, ARGUMENT).is_some());
        let name = if taken { OWN_ARGUMENT } else { ARGUMENT };
        let left = tools().filter(|tool| !has_place(*tool)).filter_map(named).collect();
        Self { name, left }
    }

    /// Name of the argument.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Tools that do not show the argument. They accept it nevertheless.
    pub(crate) fn left(&self) -> &[String] {
        &self.left
    }
}

/// Adds the argument to the tools in a result of `tools/list`. Every other byte stays unchanged.
pub(crate) fn listed<'a>(page: &'a str, argument: &Argument) -> Cow<'a, str> {
    let Some(tools) = tools(page) else { return page.into() };
    let description = json::quote(DESCRIPTION);
    let schema = format!(r#"{{"type":"string","description":{description}}}"#);
    let mut edits = Edits::new(page);
    for tool in tools {
        // A tool that was added after the profile was read may have its own argument of this name.
        if has_place(tool) && property(tool, argument.name).is_none() {
            edits.set_in(tool, &["inputSchema", "properties", argument.name], &schema);
        }
    }
    edits.apply().unwrap_or(Cow::Borrowed(page))
}

/// Appends elements to a list in a JSON text.
pub(crate) fn appended(text: &str, list: Raw<'_>, elements: &str) -> String {
    let end = list.range().end.saturating_sub(1);
    let (before, behind) = text.split_at_checked(end).unwrap_or((text, ""));
    let comma = if list.elements().next().is_some() { "," } else { "" };
    format!("{before}{comma}{elements}{behind}")
}

/// Returns the list of tools in a result of `tools/list`.
pub(crate) fn list(page: &str) -> Option<Raw<'_>> {
    Raw::parse(page).ok()?.find(&["tools"]).filter(|list| list.is_array())
}

fn tools(page: &str) -> Option<impl Iterator<Item = Raw<'_>>> {
    list(page).map(Raw::elements)
}

fn named(tool: Raw<'_>) -> Option<String> {
    tool.find(&["name"])?.text().map(Cow::into_owned)
}

fn property<'a>(tool: Raw<'a>, name: &str) -> Option<Raw<'a>> {
    tool.find(&["inputSchema", "properties", name])
}

/// Whether a property can be added without changing the meaning of the rest of the schema.
fn has_place(tool: Raw<'_>) -> bool {
    let Some(schema) = tool.find(&["inputSchema"]).filter(|schema| schema.is_object()) else {
        return false;
    };
    let there = |name: &str| schema.find(&[name]).is_some();
    if there("$ref") {
        return false;
    }
    match schema.find(&["properties"]) {
        Some(properties) => properties.is_object(),
        // A tool without arguments may have a schema of this form, too.
        None => {
            let object =
                schema.find(&["type"]).and_then(Raw::text).is_some_and(|it| it == "object");
            object && !["oneOf", "anyOf", "allOf", "not", "if"].into_iter().any(there)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(schemas: &[&str]) -> Bytes {
        let tools = schemas.iter().enumerate();
        let tools =
            tools.map(|(n, it)| format!(r#"{{"name":"t{n}","x":1.10,"inputSchema":{it}}}"#));
        let tools: Vec<String> = tools.collect();
        format!(r#"{{"tools":[{}],"nextCursor":"n","y":1e400}}"#, tools.join(",")).into()
    }

    /// R150: all tools take the argument, and nothing else changes.
    #[test]
    fn every_extensible_schema_gets_the_argument() {
        let schemas = [
            r#"{"type":"object","properties":{"a":{"minimum":1.10}},"required":["a"]}"#,
            r#"{ "properties" : { } , "additionalProperties":false}"#,
            r#"{"type":"object"}"#,
        ];
        let page = page(&schemas);
        let page = str::from_utf8(&page).unwrap();
        let argument = Argument::of(&[page.to_owned().into()]);
        assert_eq!((argument.name(), argument.left().len()), ("session_id", 0));
        let shown = listed(page, &argument);
        assert_eq!(shown.matches(r#""session_id":{"type":"string","description":"#).count(), 3);
        let property = format!(
            r#""session_id":{{"type":"string","description":{}}}"#,
            json::quote(DESCRIPTION)
        );
        let undone = shown.replace(&format!(",{property}"), "").replace(&property, "");
        assert_eq!(
            undone.replace(r#","properties":{}"#, ""),
            page.replace(r#","properties":{}"#, "")
        );
    }

    #[test]
    fn schema_that_cannot_be_extended_is_unchanged_and_reported() {
        let schemas = [
            r##"{"$ref":"#/x","properties":{}}"##,
            r#"{"type":"object","oneOf":[{"properties":{"a":{}}}]}"#,
            r#"{"properties":[]}"#,
            "true",
            r#"{"type":"object","properties":{}}"#,
        ];
        let pages = [page(&schemas)];
        let argument = Argument::of(&pages);
        assert_eq!(argument.left(), ["t0", "t1", "t2", "t3"]);
        let text = str::from_utf8(&pages[0]).unwrap();
        assert_eq!(listed(text, &argument).matches("session_id").count(), 1);
        let none = page(&schemas[..4]);
        assert_eq!(
            listed(str::from_utf8(&none).unwrap(), &argument),
            str::from_utf8(&none).unwrap()
        );
        assert_eq!(listed("[]", &argument), "[]");
    }

    /// E39: a tool keeps its own `session_id`, on every page.
    #[test]
    fn server_keeps_its_own_session_id_argument() {
        let own = r#"{"type":"object","properties":{"session_id":{"type":"integer"}}}"#;
        let plain = r#"{"type":"object","properties":{}}"#;
        let pages = [page(&[plain]), page(&[own])];
        let argument = Argument::of(&pages);
        assert_eq!(argument.name(), "stayput_session_id");
        for page in &pages {
            let shown = listed(str::from_utf8(page).unwrap(), &argument).into_owned();
            assert_eq!(shown.matches(r#""stayput_session_id":{"type":"string""#).count(), 1);
        }
        let second = listed(str::from_utf8(&pages[1]).unwrap(), &argument).into_owned();
        assert!(second.contains(r#""session_id":{"type":"integer"}"#));
        // A tool that was added after the profile was read.
        let late =
            listed(str::from_utf8(&pages[1]).unwrap(), &Argument::of(&pages[..1])).into_owned();
        assert_eq!(late, str::from_utf8(&pages[1]).unwrap());
    }

    #[test]
    fn elements_are_appended_at_the_end() {
        let text = r#"{"a":[ ],"b":[1 ]}"#;
        let raw = Raw::parse(text).unwrap();
        assert_eq!(appended(text, raw.find(&["a"]).unwrap(), "2"), r#"{"a":[ 2],"b":[1 ]}"#);
        assert_eq!(appended(text, raw.find(&["b"]).unwrap(), "2,3"), r#"{"a":[ ],"b":[1 ,2,3]}"#);
    }
}

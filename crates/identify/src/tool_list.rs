//! Session argument in results of `tools/list`.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use stayput_wire::{Edits, Raw, json};

use crate::{ArgumentName, JsonValue, edit};

/// Description that a model reads.
const DESCRIPTION: &str = "Session of this conversation (sp_…), as it was given to you in an earlier \
                           result. Pass the same one in every call, and keep it; leave it out only if \
                           you have none.";

/// Session argument of a server's tools. Determined once for all of them, so that all pages and all clients see the
/// same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionArgument {
    name: ArgumentName,
    unlisted: Vec<String>,
}

impl SessionArgument {
    /// Determines the argument for the tools on these results of `tools/list`.
    #[must_use]
    pub fn for_pages(pages: &[impl AsRef<[u8]>]) -> Self {
        let schemas = || tools(pages).map(|tool| (tool, JsonValue::Raw(tool).get("inputSchema")));
        let taken = schemas().any(|(_, it)| it.is_some_and(|it| has_own(it, ArgumentName::Plain)));
        let closed = schemas().filter(|(_, it)| !it.is_some_and(has_place));
        Self {
            name: if taken { ArgumentName::Prefixed } else { ArgumentName::Plain },
            unlisted: closed.filter_map(|(tool, _)| name(tool).map(Cow::into_owned)).collect(),
        }
    }

    /// Returns the name of the argument.
    #[must_use]
    pub fn name(&self) -> ArgumentName {
        self.name
    }

    /// Returns the tools that do not list the argument, because their schema has no place for it. They accept it
    /// nevertheless.
    #[must_use]
    pub fn unlisted(&self) -> &[String] {
        &self.unlisted
    }

    /// Adds the argument to the tools in a result of `tools/list`. Every other byte stays unchanged.
    #[must_use]
    pub fn add_to_page<'a>(&self, page: &'a str) -> Cow<'a, str> {
        let Some(list) = tool_list(page) else { return page.into() };
        let description = json::quote(DESCRIPTION);
        let property = format!(r#"{{"type":"string","description":{description}}}"#);
        let mut edits = Edits::new(page);
        for tool in list.elements() {
            // A tool that was added after the name was determined may have its own argument of this name.
            let schema = JsonValue::Raw(tool).get("inputSchema");
            if schema.is_some_and(|it| has_place(it) && !has_own(it, self.name)) {
                edits.set_in(tool, &["inputSchema", "properties", self.name.as_str()], &property);
            }
        }
        edits.apply().unwrap_or(Cow::Borrowed(page))
    }

    /// Adds the argument to the schema of one tool, and returns its name there.
    pub fn add_to_schema(schema: &mut Map<String, Value>) -> ArgumentName {
        let found = JsonValue::Object(schema);
        let own = has_own(found, ArgumentName::Plain);
        let name = if own { ArgumentName::Prefixed } else { ArgumentName::Plain };
        if has_place(found)
            && let Some(properties) =
                schema.entry("properties").or_insert_with(|| json!({})).as_object_mut()
        {
            let property = json!({ "type": "string", "description": DESCRIPTION });
            properties.insert(name.as_str().to_owned(), property);
        }
        name
    }
}

/// Appends tools, as JSON separated by commas, to a result of `tools/list`; `None` if it has no list.
#[must_use]
pub fn append_tools(page: &str, tools: &str) -> Option<String> {
    tool_list(page).map(|list| edit::append(page, list, tools))
}

/// Returns the names of the tools on these results of `tools/list`.
pub fn tool_names(pages: &[impl AsRef<[u8]>]) -> impl Iterator<Item = Cow<'_, str>> {
    tools(pages).filter_map(name)
}

fn tools(pages: &[impl AsRef<[u8]>]) -> impl Iterator<Item = Raw<'_>> {
    let pages = pages.iter().filter_map(|page| str::from_utf8(page.as_ref()).ok());
    pages.filter_map(tool_list).flat_map(Raw::elements)
}

fn tool_list(page: &str) -> Option<Raw<'_>> {
    Raw::parse(page).ok()?.find(&["tools"]).filter(|list| list.is_array())
}

fn name(tool: Raw<'_>) -> Option<Cow<'_, str>> {
    tool.find(&["name"])?.text()
}

/// Returns whether a schema has its own argument of this name.
fn has_own(schema: JsonValue<'_>, name: ArgumentName) -> bool {
    schema.get("properties").is_some_and(|properties| properties.get(name.as_str()).is_some())
}

/// Returns whether a property can be added without changing the meaning of the rest of the schema.
fn has_place(schema: JsonValue<'_>) -> bool {
    let has = |name: &str| schema.get(name).is_some();
    if !schema.is_object() || has("$ref") {
        return false;
    }
    match schema.get("properties") {
        Some(properties) => properties.is_object(),
        // A tool without arguments may have a schema of this form, too.
        None => {
            let is_object = schema.get("type").and_then(JsonValue::text);
            is_object.as_deref() == Some("object")
                && !["oneOf", "anyOf", "allOf", "not", "if"].into_iter().any(has)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(schemas: &[&str]) -> String {
        let tools = schemas.iter().enumerate();
        let tools =
            tools.map(|(n, it)| format!(r#"{{"name":"t{n}","x":1.10,"inputSchema":{it}}}"#));
        let tools: Vec<String> = tools.collect();
        format!(r#"{{"tools":[{}],"nextCursor":"n","y":1e400}}"#, tools.join(","))
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
        let argument = SessionArgument::for_pages(&[&page]);
        assert_eq!((argument.name().as_str(), argument.unlisted().len()), ("session_id", 0));
        let shown = argument.add_to_page(&page);
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
        let argument = SessionArgument::for_pages(&pages);
        assert_eq!(argument.unlisted(), ["t0", "t1", "t2", "t3"]);
        assert_eq!(argument.add_to_page(&pages[0]).matches("session_id").count(), 1);
        let none = page(&schemas[..4]);
        assert_eq!(argument.add_to_page(&none), none);
        assert_eq!(argument.add_to_page("[]"), "[]");
        for schema in &schemas[..3] {
            let schema: Map<String, Value> = serde_json::from_str(schema).unwrap();
            let mut edited = schema.clone();
            SessionArgument::add_to_schema(&mut edited);
            assert_eq!(edited, schema);
        }
    }

    /// E39: a tool keeps its own `session_id`, on every page.
    #[test]
    fn server_keeps_its_own_session_id_argument() {
        let own = r#"{"type":"object","properties":{"session_id":{"type":"integer"}}}"#;
        let plain = r#"{"type":"object","properties":{}}"#;
        let pages = [page(&[plain]), page(&[own])];
        let argument = SessionArgument::for_pages(&pages);
        assert_eq!(argument.name().as_str(), "stayput_session_id");
        for page in &pages {
            let shown = argument.add_to_page(page);
            assert_eq!(shown.matches(r#""stayput_session_id":{"type":"string""#).count(), 1);
        }
        let second = argument.add_to_page(&pages[1]);
        assert!(second.contains(r#""session_id":{"type":"integer"}"#));
        // A tool that was added after the name was determined.
        let late = SessionArgument::for_pages(&pages[..1]);
        assert_eq!(late.add_to_page(&pages[1]), pages[1]);
    }

    /// A parsed schema gets the same property as a written one.
    #[test]
    fn parsed_schema_gets_the_same_argument() {
        for (schema, name) in [
            (r#"{"type":"object"}"#, ArgumentName::Plain),
            (r#"{"type":"object","properties":{"session_id":{}}}"#, ArgumentName::Prefixed),
        ] {
            let text = page(&[schema]).replace(r#","y":1e400"#, "");
            let written = SessionArgument::for_pages(&[&text]).add_to_page(&text).into_owned();
            let written: Value = serde_json::from_str(&written).unwrap();
            let mut parsed: Map<String, Value> = serde_json::from_str(schema).unwrap();
            assert_eq!(SessionArgument::add_to_schema(&mut parsed), name);
            assert_eq!(written["tools"][0]["inputSchema"], Value::Object(parsed));
        }
    }

    #[test]
    fn tools_are_appended_to_a_list_only() {
        assert_eq!(append_tools(r#"{"tools":[]}"#, "{}").as_deref(), Some(r#"{"tools":[{}]}"#));
        assert_eq!(append_tools(r#"{"tools":1}"#, "{}"), None);
        assert_eq!(tool_names(&[page(&["{}", "{}"])]).collect::<Vec<_>>(), ["t0", "t1"]);
    }
}

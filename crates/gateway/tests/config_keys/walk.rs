//! Walk over the schema: every key of the file has a row, and every row a key.

use std::collections::BTreeSet;

use serde_json::{Value, json};

const SCHEMA: &str = include_str!("../../../../docs/stayput.schema.json");

/// Keys that have a row, by table.
const TABLES: [&[&str]; 6] = [
    crate::server::KEYS,
    crate::choices::KEYS,
    crate::settings::KEYS,
    crate::limits::KEYS,
    crate::auth::KEYS,
    crate::identify::KEYS,
];

/// Collects the paths of all keys that have a value of their own: everything but objects of further keys.
fn leaves(root: &Value, schema: &Value, at: &str, found: &mut BTreeSet<String>) {
    let schema = match schema["$ref"].as_str() {
        Some(pointer) => root.pointer(pointer.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    let choices = schema["anyOf"].as_array().map_or(&[][..], Vec::as_slice);
    // An object may be one of several forms of a value. The other forms are the value of the key itself.
    let is_form = |choice: &Value| choice["required"].is_null() || !choice["type"].is_null();
    let forms = choices.iter().filter(|choice| is_form(choice));
    let forms: Vec<_> = forms.collect();
    for form in &forms {
        leaves(root, form, at, found);
    }
    let mut is_leaf = forms.is_empty();
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        leaves(root, inner, &path, found);
        is_leaf = false;
    }
    // A map from names to objects, such as the tokens. A map from names to strings is one value.
    let inner = &schema["additionalProperties"];
    let has_keys = |inner: &Value| {
        let mut keys = BTreeSet::new();
        leaves(root, inner, "*", &mut keys);
        keys.iter().any(|key| key != "*")
    };
    if inner.is_object() && has_keys(inner) {
        leaves(root, inner, &format!("{at}.*"), found);
        is_leaf = false;
    }
    if is_leaf {
        found.insert(at.to_owned());
    }
}

/// Returns the keys of a schema. Keys of a server begin with `server.`, whichever object lists the server.
fn keys_of(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    leaves(schema, schema, "", &mut found);
    let lists = ["mcpServers", "servers"];
    let mut keys: BTreeSet<_> = lists.map(str::to_owned).into();
    for key in found {
        let of_a_server = lists.iter().find_map(|list| key.strip_prefix(&format!("{list}.*.")));
        keys.insert(of_a_server.map_or_else(|| key.clone(), |rest| format!("server.{rest}")));
    }
    keys
}

fn rows() -> Vec<&'static str> {
    TABLES.concat()
}

/// Returns keys without a row, and rows without a key.
fn differences(schema: &Value, rows: &[&str]) -> (Vec<String>, Vec<String>) {
    let keys = keys_of(schema);
    let rows: BTreeSet<_> = rows.iter().map(|&row| row.to_owned()).collect();
    (keys.difference(&rows).cloned().collect(), rows.difference(&keys).cloned().collect())
}

#[test]
fn every_key_of_the_schema_has_a_test_of_its_effect() {
    let schema = serde_json::from_str(SCHEMA).unwrap();
    let (untested, unknown) = differences(&schema, &rows());
    let advice = "add a row to a table in crates/gateway/tests/config_keys, see CONTRIBUTING.md";
    assert!(untested.is_empty(), "keys without a test of their effect: {untested:#?}; {advice}");
    assert!(unknown.is_empty(), "rows for keys that the schema does not have: {unknown:#?}");
}

#[test]
fn walk_finds_a_key_without_a_row_and_a_row_without_a_key() {
    let mut schema: Value = serde_json::from_str(SCHEMA).unwrap();
    schema["definitions"]["choices"]["properties"]["colour"] = json!({ "type": "string" });
    let tokens = "/definitions/settings/properties/auth/properties/tokens/additionalProperties";
    let form = schema.pointer_mut(&format!("{tokens}/anyOf/1/properties")).unwrap();
    form["size"] = json!({ "type": "integer" });
    let mut rows = rows();
    rows.retain(|row| *row != "stayput.limits.body");
    rows.push("stayput.gone");
    let (untested, unknown) = differences(&schema, &rows);
    let expected = ["server.stayput.colour", "stayput.auth.tokens.*.size", "stayput.limits.body"];
    assert_eq!(untested, expected);
    assert_eq!(unknown, ["stayput.gone"]);
}

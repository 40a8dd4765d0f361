//! Tests that the schema of the file matches the program.

use serde_json::Value;

use super::{SCHEMA as SCHEMA_TEXT, *};

pub(super) fn schema() -> &'static Value {
    static SCHEMA: std::sync::LazyLock<Value> =
        std::sync::LazyLock::new(|| serde_json::from_str(SCHEMA_TEXT).unwrap());
    &SCHEMA
}

/// Resolves a reference.
pub(super) fn target<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    match schema["$ref"].as_str() {
        Some(pointer) => {
            let found = root.pointer(pointer.trim_start_matches('#'));
            found.unwrap_or_else(|| panic!("{pointer} leads nowhere"))
        }
        None => schema,
    }
}

/// Validates `value`, with the JSON Schema keywords that the schema uses.
fn judge(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let schema = target(root, schema);
    for word in schema.as_object().unwrap().keys() {
        let known = [
            "$schema",
            "$id",
            "title",
            "description",
            "default",
            "examples",
            "definitions",
            "type",
            "properties",
            "additionalProperties",
            "required",
            "items",
            "enum",
            "anyOf",
            "minimum",
            "exclusiveMinimum",
            "minItems",
            "minProperties",
            "pattern",
            "propertyNames",
        ];
        assert!(known.contains(&word.as_str()), "nobody checks {word:?}");
    }
    let fits = match schema["type"].as_str() {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some(other) => panic!("nobody checks the type {other:?}"),
    };
    let listed = schema["enum"].as_array().is_none_or(|choices| choices.contains(value));
    let enough = schema["minimum"].as_f64() <= value.as_f64() || !value.is_number();
    let above = schema["exclusiveMinimum"].as_f64() < value.as_f64() || !value.is_number();
    let written = value.as_str().is_none_or(|text| is_of(&schema["pattern"], text));
    if !(fits && listed && enough && above && written) {
        return Err(format!("{at} does not fit"));
    }
    if let Some(choices) = schema["anyOf"].as_array()
        && !choices.iter().any(|choice| judge(root, choice, value, at).is_ok())
    {
        return Err(format!("{at} fits nothing"));
    }
    inside(root, schema, value, at)
}

/// Whether a text matches a pattern of the schema. Each pattern is implemented here by hand.
fn is_of(pattern: &Value, text: &str) -> bool {
    let Some(pattern) = pattern.as_str() else { return true };
    let filled = text.contains("${");
    let amount = |units: &[&str]| {
        let text = text.trim();
        let digits = text.len() - text.trim_start_matches(|it: char| it.is_ascii_digit()).len();
        let (digits, unit) = text.split_at(digits);
        units.contains(&unit.trim_start()).then(|| digits.parse::<f64>().ok()).flatten()
    };
    let time = || amount(&["ms", "s", "m", "h", "d"]);
    match pattern {
        r"^\s*[0-9]+\s*(ms|s|m|h|d)\s*$|\$\{" => filled || time().is_some(),
        r"^never$|^\s*0*[1-9][0-9]*\s*(ms|s|m|h|d)\s*$|\$\{" => {
            filled || text == "never" || time().is_some_and(|time| time > 0.0)
        }
        r"^\s*0*[1-9][0-9]*\s*([Bb]|[KkMmGg][Ii]?[Bb])\s*$|\$\{" => {
            let units = ["B", "KB", "MB", "GB", "KiB", "MiB", "GiB"];
            filled || amount(&units).is_some_and(|amount| amount > 0.0)
        }
        r"^(?!\.+$)[A-Za-z0-9._-]{1,64}$" => {
            let word = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
            let dots = text.chars().all(|it| it == '.');
            (1..=64).contains(&text.len()) && text.chars().all(word) && !dots
        }
        other => panic!("nobody checks the pattern {other:?}"),
    }
}

fn inside(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let least = schema["minItems"].as_u64().unwrap_or_default();
    let few = schema["minProperties"].as_u64().unwrap_or_default();
    if value.as_array().is_some_and(|elements| (elements.len() as u64) < least)
        || value.as_object().is_some_and(|members| (members.len() as u64) < few)
    {
        return Err(format!("{at} has too few"));
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        if value.get(required.as_str().unwrap()).is_none() {
            return Err(format!("{at} has no {required}"));
        }
    }
    for (index, element) in value.as_array().into_iter().flatten().enumerate() {
        if !schema["items"].is_null() {
            judge(root, &schema["items"], element, &format!("{at}.{index}"))?;
        }
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        if !is_of(&schema["propertyNames"]["pattern"], name) {
            return Err(format!("{at} is no name"));
        }
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Bool(false)) => return Err(format!("{at} is unknown")),
            (Value::Null, Value::Null | Value::Bool(true)) => {}
            (Value::Null, other) => judge(root, other, member, &at)?,
            (known, _) => judge(root, known, member, &at)?,
        }
    }
    Ok(())
}

pub(super) fn validate(text: &str) -> Result<(), String> {
    let document = Document::new(text, Path::new("x.json"), files::known());
    let plain = document.read(|root| Ok(root.as_str().to_owned())).unwrap();
    let value = serde_json::from_str(&plain).unwrap();
    let schema = schema();
    judge(schema, schema, &value, "")
}

#[test]
fn every_example_matches_the_schema() {
    for (name, text) in files::samples() {
        validate(&text).unwrap_or_else(|problem| panic!("{name}: {problem}"));
    }
}

/// The schema refuses what the program refuses, as far as a schema can.
#[test]
fn refused_files_do_not_match_the_schema() {
    for text in [
        "{}",
        r#"{"mcpServers": []}"#,
        r#"{"mcpServers": {"a": {"command": 1}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "args": [1]}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "env": {"A": 1}}}}"#,
        r#"{"mcpServers": {"a": {"type": "x", "command": "x"}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "stayput": {"x": 1}}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "stayput": {"era": "x"}}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "stayput": {"warm": -1}}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "stayput": {"for": "x"}}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "stayput": {"for": {"x": 1}}}}}"#,
        r#"{"mcpServers": {}, "stayput": {"limits": {"x": 1}}}"#,
        r#"{"mcpServers": {}, "stayput": {"limits": {"sessions_per_owner": 0}}}"#,
        r#"{"mcpServers": {}, "stayput": {"limits": {"processes": 1.5}}}"#,
        r#"{"mcpServers": {}, "stayput": {"limits": {"calls_per_session": 0}}}"#,
        r#"{"mcpServers": {}, "stayput": {"limits": {"per_owner": {"requests_per_second": 0}}}}"#,
        r#"{"mcpServers": {}, "stayput": {"limits": {"per_owner": {"requests_per_second": "no"}}}}"#,
        r#"{"mcpServers": {}, "stayput": {"identify": {"x": true}}}"#,
        r#"{"mcpServers": {}, "stayput": {"identify": {"meta": 1}}}"#,
        r#"{"mcpServers": {}, "stayput": {"hints": ["x"]}}"#,
        r#"{"mcpServers": {}, "stayput": {"unidentified": "x"}}"#,
        r#"{"mcpServers": {}, "stayput": {"session_tools": "x"}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "stayput": {"handles": "x"}}}}"#,
        r#"{"mcpServers": {"a b": {"command": "x"}}}"#,
        r#"{"mcpServers": {"..": {"command": "x"}}}"#,
        r#"{"mcpServers": {"a": {"args": []}}}"#,
        r#"{"mcpServers": {"a": {"args": [], "disabled": false}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "stayput": {"timeout": "soon"}}}}"#,
        r#"{"mcpServers": {}, "stayput": {"expiry": {"idle": 0}}}"#,
        r#"{"mcpServers": {}, "stayput": {"expiry": {"idle": "0s"}}}"#,
        r#"{"mcpServers": {}, "stayput": {"limits": {"memory": "2"}}}"#,
        r#"{"mcpServers": {}, "stayput": {"limits": {"body": 0}}}"#,
    ] {
        assert!(parse(text).is_err(), "the program takes {text}");
        assert!(validate(text).is_err(), "the schema takes {text}");
    }
}

#[test]
fn schema_has_all_keys_of_the_program() {
    let schema = schema();
    let names = |pointer: &str| {
        let found = target(schema, schema.pointer(pointer).unwrap());
        let mut names: Vec<&str> =
            found["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    };
    let file = "/properties/stayput";
    let server = "/definitions/server/properties/stayput";
    let inner = |of: &str, name: &str| {
        // An object may be behind a reference.
        let outer = target(schema, schema.pointer(of).unwrap());
        let found = target(schema, &outer["properties"][name]);
        let either =
            found["anyOf"].as_array().and_then(|all| all.iter().find(|it| it["type"] == "object"));
        let object = either.unwrap_or(found);
        let mut names: Vec<String> =
            object["properties"].as_object().unwrap().keys().cloned().collect();
        names.sort_unstable();
        names
    };
    let sorted = |keys: &[&'static str]| {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys
    };
    assert_eq!(names("/definitions/server"), sorted(common::ENTRY));
    assert_eq!(names(server), sorted(common::SERVER));
    assert_eq!(names(file), sorted(keys::FILE));
    assert_eq!(inner(server, "warm"), sorted(common::WARM));
    assert_eq!(inner(server, "tools"), sorted(common::TOOLS));
    assert_eq!(inner(file, "expiry"), sorted(keys::EXPIRY));
    assert_eq!(inner(file, "tls"), sorted(keys::TLS));
    assert_eq!(inner(file, "limits"), sorted(keys::LIMITS));
    assert_eq!(inner(file, "identify"), sorted(keys::IDENTIFY));
    assert_eq!(inner(file, "auth"), sorted(keys::AUTH));
    assert_eq!(inner(file, "audit"), sorted(keys::AUDIT));
    assert_eq!(inner(file, "otlp"), sorted(keys::OTLP));
    assert_eq!(inner(file, "ui"), sorted(keys::UI));
    let auth = "/definitions/settings/properties/auth";
    assert_eq!(inner(auth, "jwt"), sorted(keys::JWT));
    assert_eq!(inner(auth, "proxy"), sorted(keys::PROXY));
    let hints = &schema["definitions"]["settings"]["properties"]["hints"]["items"]["enum"];
    assert_eq!(*hints, serde_json::json!(stayput_identify::HINT_SOURCES));
    let limits =
        target(schema, &target(schema, &schema["properties"]["stayput"])["properties"]["limits"]);
    let per_owner = target(schema, &limits["properties"]["per_owner"]);
    let mut found: Vec<&String> = per_owner["properties"].as_object().unwrap().keys().collect();
    found.sort_unstable();
    assert_eq!(found, sorted(keys::PER_OWNER));
    for key in common::SERVERS.into_iter().chain([common::STAYPUT]) {
        assert!(!schema["properties"][key].is_null(), "{key}");
    }
}

#[test]
fn schema_has_all_defaults_of_the_program() {
    let schema = schema();
    let settings = &schema["definitions"]["settings"]["properties"];
    let own = parse(r#"{"mcpServers": {}}"#).unwrap();
    assert_eq!(settings["listen"]["default"], own.listen.to_string());
    let limits = &settings["limits"]["properties"];
    let per_owner = &limits["per_owner"]["properties"];
    for (said, is) in [
        (&limits["processes"], own.limits.links.processes),
        (&limits["links"], own.limits.links.links),
        (&per_owner["processes"], own.limits.links.per_owner.processes),
        (&per_owner["links"], own.limits.links.per_owner.links),
        (&limits["calls_per_session"], usize::try_from(own.limits.calls).unwrap()),
        (&limits["sessions_per_owner"], own.limits.sessions.per_owner),
    ] {
        assert_eq!(said["default"], is, "{said}");
    }
}

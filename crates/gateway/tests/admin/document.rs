//! OpenAPI document of the admin API, and a check of answers against it.

use serde_json::Value;

/// Returns the shipped document.
pub(crate) fn document() -> Value {
    serde_json::from_str(include_str!("../../src/admin/openapi.json")).unwrap()
}

/// Checks an answer to `method` at `path` against the document.
pub(crate) fn check(method: &str, path: &str, status: u16, body: &[u8]) {
    let document = document();
    let path = path.split('?').next().unwrap();
    let forms = document["paths"].as_object().unwrap();
    let Some((form, methods)) = forms.iter().find(|(form, _)| is_of(form, path)) else {
        assert_eq!(status, 404, "{path} is not in the document");
        return;
    };
    let operation = &methods[method.to_lowercase()];
    if operation.is_null() {
        assert_eq!(status, 405, "{method} {form} is not in the document");
        return;
    }
    let response = &operation["responses"][status.to_string()];
    assert!(response.is_object(), "{method} {form}: {status} is not in the document");
    let schema = &response["content"]["application/json"]["schema"];
    if schema.is_null() {
        assert!(body.is_empty(), "{method} {form}: {status} has no body in the document");
        return;
    }
    let value: Value = serde_json::from_slice(body).unwrap();
    judge(&document, schema, &value, form);
}

fn is_of(form: &str, path: &str) -> bool {
    let (form, path): (Vec<_>, Vec<_>) = (form.split('/').collect(), path.split('/').collect());
    let pairs = form.iter().zip(&path);
    form.len() == path.len() && pairs.clone().all(|(form, part)| form == part || *form == "{id}")
}

/// Checks a value against a schema, with the keywords of JSON Schema that the document uses.
fn judge(root: &Value, schema: &Value, value: &Value, at: &str) {
    if let Err(wrong) = fits(root, schema, value, at) {
        panic!("{wrong}: {value}");
    }
}

/// Returns whether a value has the type of the schema. Its contents are not checked.
fn suits(schema: &Value, value: &Value) -> bool {
    let types: Vec<&str> = match &schema["type"] {
        Value::Null => Vec::new(),
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().map(|it| it.as_str().unwrap()).collect(),
        other => panic!("{other}"),
    };
    let is = |kind: &&str| match *kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "null" => value.is_null(),
        other => panic!("nobody checks the type {other:?}"),
    };
    let listed = schema["enum"].as_array().is_none_or(|choices| choices.contains(value));
    let enough = value.as_f64() >= schema["minimum"].as_f64() || !value.is_number();
    let formed = match (schema["format"].as_str(), value.as_str()) {
        (Some("date-time"), Some(text)) => text.len() == 20 && text.ends_with('Z'),
        (Some("uuid"), Some(text)) => text.len() == 36,
        (None, _) | (_, None) => true,
        (Some(other), _) => panic!("nobody checks the format {other:?}"),
    };
    (types.is_empty() || types.iter().any(is)) && listed && enough && formed
}

fn fits(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let schema = match schema["$ref"].as_str() {
        Some(pointer) => root.pointer(pointer.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    let known = [
        "type",
        "description",
        "additionalProperties",
        "required",
        "properties",
        "items",
        "enum",
        "anyOf",
        "minimum",
        "format",
    ];
    for word in schema.as_object().unwrap().keys() {
        assert!(known.contains(&word.as_str()), "nobody checks {word:?}");
    }
    if !suits(schema, value) {
        return Err(format!("{at} does not fit"));
    }
    if let Some(choices) = schema["anyOf"].as_array()
        && !choices.iter().any(|choice| fits(root, choice, value, at).is_ok())
    {
        return Err(format!("{at} fits none of its choices"));
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(name) {
            Some(schema) => fits(root, schema, member, &format!("{at}.{name}"))?,
            None if schema["additionalProperties"] == false => {
                return Err(format!("{at}.{name} is not in the document"));
            }
            None => {}
        }
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        if value.get(name.as_str().unwrap()).is_none() {
            return Err(format!("{at}.{name} is missing"));
        }
    }
    for (place, item) in value.as_array().into_iter().flatten().enumerate() {
        fits(root, &schema["items"], item, &format!("{at}[{place}]"))?;
    }
    Ok(())
}

/// The check above can fail: it finds a missing member, an extra member and a wrong type.
#[test]
fn value_that_breaks_the_schema_is_found() {
    let document = document();
    let schema = &document["components"]["schemas"]["Ended"];
    let good = serde_json::json!({ "at": "2026-07-28T00:00:00Z", "reason": "idle" });
    assert_eq!(fits(&document, schema, &good, "it"), Ok(()));
    for (name, value) in
        [("reason", "tired".into()), ("at", Value::Null), ("at", "now".into()), ("more", 1.into())]
    {
        let mut wrong = good.clone();
        wrong[name] = value;
        assert!(fits(&document, schema, &wrong, "it").is_err(), "{wrong}");
    }
    assert!(fits(&document, schema, &serde_json::json!({ "reason": "idle" }), "it").is_err());
}

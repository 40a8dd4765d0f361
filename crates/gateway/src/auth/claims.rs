//! Claims of a principal.

use serde_json::{Map, Value};

/// Claim that names the principal.
const SUBJECT: &str = "sub";

/// Claims about a principal, from the issuer or the configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Claims(pub(crate) Map<String, Value>);

impl Claims {
    /// Adds the subject, unless the claims contain it.
    pub(super) fn with_subject(mut self, subject: &str) -> Self {
        self.0.entry(SUBJECT).or_insert_with(|| subject.into());
        self
    }

    /// Returns the claim of this name if it is a string.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// Whether a claim has this value, or is a list that contains it. OAuth writes `scope` as one string with spaces.
    pub(crate) fn has(&self, name: &str, value: &str) -> bool {
        match self.0.get(name) {
            Some(Value::String(text)) if name == "scope" => {
                text.split(' ').any(|scope| scope == value)
            }
            Some(Value::Array(list)) => list.iter().any(|one| is(one, value)),
            Some(one) => is(one, value),
            None => false,
        }
    }
}

/// Whether a claim equals this value. Numbers and booleans are compared in their JSON notation.
fn is(claim: &Value, value: &str) -> bool {
    match claim {
        Value::String(text) => text == value,
        Value::Bool(is) => value == if *is { "true" } else { "false" },
        Value::Number(number) => *value == *number.to_string(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claim_matches_one_value_or_a_list_entry() {
        let document = json!({
            "team": ["ops", "dev", 7], "level": 2, "admin": true, "name": "ann", "none": null,
            "scope": "read write", "nested": { "team": "ops" }, "deep": [["ops"]],
        });
        let claims = Claims(document.as_object().unwrap().clone()).with_subject("ann");
        for (name, value) in [
            ("team", "dev"),
            ("team", "7"),
            ("level", "2"),
            ("admin", "true"),
            ("name", "ann"),
            ("scope", "read"),
            ("scope", "write"),
            ("sub", "ann"),
        ] {
            assert!(claims.has(name, value), "{name}: {value}");
        }
        for (name, value) in [
            ("team", "op"),
            ("level", "2.0"),
            ("name", "an"),
            ("none", "null"),
            ("none", ""),
            ("scope", "read write"),
            ("nested", "ops"),
            ("deep", "ops"),
            ("gone", ""),
            ("sub", "bob"),
        ] {
            assert!(!claims.has(name, value), "{name}: {value}");
        }
    }
}

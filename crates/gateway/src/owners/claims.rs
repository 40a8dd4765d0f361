//! What is said of somebody beside its name.

use serde_json::{Map, Value};

/// What whoever vouches for somebody says of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Claims(pub(crate) Map<String, Value>);

impl Claims {
    /// The claim of this name, if it is a text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of these are among them. A claim that is a list has each of its values.
    pub(crate) fn have(&self, wanted: &Self) -> bool {
        wanted.0.iter().all(|(name, value)| match self.0.get(name) {
            Some(Value::Array(list)) if !value.is_array() => list.contains(value),
            Some(own) => own == value,
            None => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Claims {
        Claims(value.as_object().unwrap().clone())
    }

    #[test]
    fn all_that_is_wanted_must_be_there() {
        let ann = claims(json!({ "team": "ops", "roles": ["admin", "user"], "level": 3 }));
        for wanted in [
            json!({ "team": "ops" }),
            json!({ "roles": "admin", "level": 3 }),
            json!({ "roles": ["admin", "user"] }),
        ] {
            assert!(ann.have(&claims(wanted.clone())), "{wanted}");
        }
        for wanted in [
            json!({ "team": "op" }),
            json!({ "roles": "adm" }),
            json!({ "roles": "admin", "level": "3" }),
            json!({ "group": null }),
            json!({ "roles": ["admin"] }),
        ] {
            assert!(!ann.have(&claims(wanted.clone())), "{wanted}");
        }
    }
}

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
}

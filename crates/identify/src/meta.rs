//! Members of `_meta` that can name a session.

use std::borrow::Cow;

use stayput_wire::{Message, meta};

use crate::{CustomSource, JsonValue};

/// Members of `_meta` that can name a session, read once for all name sources. Other members are skipped, so most
/// requests cost no allocation.
#[derive(Debug, Default)]
pub struct MetaMembers<'a>(Vec<(Cow<'a, str>, JsonValue<'a>)>);

impl<'a> MetaMembers<'a> {
    /// Reads the members from a message. `custom` has the configured sources.
    #[must_use]
    pub fn from_message(message: &Message<'a>, custom: &[CustomSource]) -> Self {
        message
            .meta()
            .map(|found| Self::from_object(JsonValue::Raw(found), custom))
            .unwrap_or_default()
    }

    /// Reads the members from the object `_meta`.
    #[must_use]
    pub fn from_object(found: JsonValue<'a>, custom: &[CustomSource]) -> Self {
        let can_name = |key: &str| {
            key == meta::SESSION
                || key == meta::BAGGAGE
                || meta::CONVERSATION_HINTS.iter().any(|(_, hint)| *hint == key)
                || custom
                    .iter()
                    .any(|source| matches!(source, CustomSource::Meta(name) if name == key))
        };
        Self(found.members().filter(|(key, _)| can_name(key)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all values of one member. If it occurs twice, both count.
    pub(crate) fn values<'m>(&'m self, name: &'m str) -> impl Iterator<Item = JsonValue<'a>> + 'm {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_they_were_written() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"dev.stayput/session":"key:a","n":1.10,"x":2,"dev.stayput/s\u0065ssion":null}}}"#;
        let message = Message::parse(text.as_bytes()).unwrap();
        let members = MetaMembers::from_message(&message, &[CustomSource::Meta("n".into())]);
        assert_eq!(members.0.len(), 3);
        let session: Vec<_> = members.values(meta::SESSION).collect();
        assert_eq!(session[0].text().as_deref(), Some("key:a"));
        assert!(session[1].is_null());
        let number = members.values("n").next();
        assert!(matches!(number, Some(JsonValue::Raw(raw)) if raw.as_str() == "1.10"));
        assert!(members.values("x").next().is_none());
        let none = Message::parse(br#"{"jsonrpc":"2.0","id":1,"method":"m"}"#).unwrap();
        assert!(MetaMembers::from_message(&none, &[]).is_empty());
    }
}

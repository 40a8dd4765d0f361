//! Session name and other members of `_meta`.

use std::borrow::Cow;

use stayput_wire::{Message, Raw, meta};

/// Member of `_meta`. Lists of members are in the order in which they were written.
pub(super) type Member<'a> = (Cow<'a, str>, Raw<'a>);

/// Returns the members of `_meta`, parsed once for all name sources.
pub(super) fn members<'a>(message: &Message<'a>) -> Vec<Member<'a>> {
    let Some(found) = message.meta() else { return Vec::new() };
    found.members().filter_map(|(name, value)| Some((name.text()?, value))).collect()
}

/// Returns all values of one member. If it occurs twice, both count.
pub(super) fn values<'m, 'a>(
    members: &'m [Member<'a>],
    name: &'m str,
) -> impl Iterator<Item = Raw<'a>> + 'm {
    members.iter().filter(move |(known, _)| known == name).map(|(_, value)| *value)
}

/// Returns the session names, as they were written.
pub(super) fn session<'m, 'a>(members: &'m [Member<'a>]) -> impl Iterator<Item = Raw<'a>> + 'm {
    values(members, meta::SESSION).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_they_were_written() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"dev.stayput/session":"key:a","n":1.10,"dev.stayput/s\u0065ssion":null}}}"#;
        let message = Message::parse(text.as_bytes()).unwrap();
        let all = members(&message);
        assert_eq!(all.len(), 3);
        let names: Vec<_> = session(&all).map(Raw::as_str).collect();
        assert_eq!(names, ["\"key:a\""], "null is nothing");
        assert_eq!(values(&all, "n").next().unwrap().as_str(), "1.10");
        let none = Message::parse(br#"{"jsonrpc":"2.0","id":1,"method":"m"}"#).unwrap();
        assert!(members(&none).is_empty());
    }
}

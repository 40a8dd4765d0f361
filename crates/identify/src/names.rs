//! Explicit session names of a request.

use http::HeaderMap;
use stayput_core::{InvalidName, Name};
use stayput_wire::{Message, meta};

use crate::{
    ArgumentName, ArgumentRule, CustomSource, MetaMembers, NameError, RequestEdit,
    SessionArguments, error::Place, header, path,
};

/// Explicit session names of a request. Each method reads one name source; a source that is disabled is not read, and
/// stays in the request. Names that differ are one error, whichever source they are from.
///
/// Most requests have at most one name, so no list is allocated.
#[derive(Debug, Default)]
pub struct ExplicitNames {
    first: Option<PlacedName>,
    /// Names that differ from the first.
    others: Vec<PlacedName>,
    /// Whether an argument names a session, or is malformed.
    named_by_argument: bool,
    /// Arguments that are not for the tool.
    plain_argument: bool,
    prefixed_argument: bool,
    /// Whether `_meta` holds a session name.
    in_meta: bool,
}

#[derive(Debug)]
struct PlacedName {
    name: Name,
    place: Place,
}

impl ExplicitNames {
    /// Reads one argument of a tool call.
    ///
    /// # Errors
    /// If the value is for Stayput, but no valid name.
    pub fn read_argument(
        &mut self,
        arguments: SessionArguments<'_>,
        name: ArgumentName,
        rule: ArgumentRule,
    ) -> Result<(), NameError> {
        let Some(value) = arguments.get(name) else { return Ok(()) };
        let (text, owned) = (value.text(), rule == ArgumentRule::Owned);
        let is_empty = value.is_null() || text.as_deref() == Some("");
        let named = text.as_deref().and_then(Name::parse);
        let taken = match rule {
            ArgumentRule::Owned => true,
            ArgumentRule::Added => is_empty || named.is_some(),
            ArgumentRule::Unknown => named.is_some(),
        };
        match name {
            ArgumentName::Plain => self.plain_argument |= taken,
            ArgumentName::Prefixed => self.prefixed_argument |= taken,
        }
        self.named_by_argument |= named.is_some() || (owned && !is_empty);
        match named {
            Some(named) => self.add(name.place().into(), named),
            None if owned && !is_empty => Err(NameError::NotAName { place: name.place().into() }),
            None => Ok(()),
        }
    }

    /// Reads `_meta["dev.stayput/session"]`.
    ///
    /// # Errors
    /// If a value is no valid name. `null` names nothing.
    pub fn read_meta(&mut self, members: &MetaMembers<'_>) -> Result<(), NameError> {
        for value in members.values(meta::SESSION).filter(|value| !value.is_null()) {
            self.in_meta = true;
            self.add_text("`_meta[\"dev.stayput/session\"]`", value.text().as_deref())?;
        }
        Ok(())
    }

    /// Reads the header `Stayput-Session`.
    ///
    /// # Errors
    /// If a value is no valid name. An empty value names nothing.
    pub fn read_header(&mut self, headers: &HeaderMap) -> Result<(), NameError> {
        for value in header::values(headers, &header::STAYPUT_SESSION) {
            self.add_text("the header Stayput-Session", value.ok().as_deref())?;
        }
        Ok(())
    }

    /// Reads the key of a path, see [`SplitPath`](crate::SplitPath).
    ///
    /// # Errors
    /// If the key is not valid.
    pub fn read_path(&mut self, key: &str) -> Result<(), NameError> {
        self.add("the path".into(), path::read(key))
    }

    /// Reads a configured source. `claim` returns a claim of the caller's token.
    ///
    /// # Errors
    /// If a value begins like a name, but is malformed. Other values are conversation ids.
    pub fn read_custom<'c>(
        &mut self,
        source: &CustomSource,
        headers: &HeaderMap,
        members: &MetaMembers<'_>,
        claim: impl FnOnce(&str) -> Option<&'c str>,
    ) -> Result<(), NameError> {
        match source {
            CustomSource::Header(name) => header::values(headers, name)
                .filter_map(Result::ok)
                .try_for_each(|id| self.add_id(source, &id)),
            CustomSource::Meta(key) => members
                .values(key)
                .filter_map(|value| value.text())
                .try_for_each(|id| self.add_id(source, &id)),
            CustomSource::Claim(name) => claim(name).map_or(Ok(()), |id| self.add_id(source, id)),
        }
    }

    fn add_id(&mut self, source: &CustomSource, id: &str) -> Result<(), NameError> {
        source.name(id).map_or(Ok(()), |name| self.add(source.place().into(), name))
    }

    fn add_text(&mut self, place: &'static str, text: Option<&str>) -> Result<(), NameError> {
        match text.and_then(Name::parse) {
            Some(name) => self.add(place.into(), name),
            None => Err(NameError::NotAName { place: place.into() }),
        }
    }

    fn add(&mut self, place: Place, name: Result<Name, InvalidName>) -> Result<(), NameError> {
        let name = match name {
            Ok(name) => name,
            Err(problem) => return Err(NameError::Malformed { place, problem }),
        };
        match &self.first {
            None => self.first = Some(PlacedName { name, place }),
            Some(first) if first.name.is_same(&name) => {}
            Some(_) => self.others.push(PlacedName { name, place }),
        }
        Ok(())
    }

    /// Returns the first name.
    #[must_use]
    pub fn first(&self) -> Option<&Name> {
        self.first.as_ref().map(|it| &it.name)
    }

    /// Returns the first name.
    #[must_use]
    pub fn into_first(self) -> Option<Name> {
        self.first.map(|it| it.name)
    }

    /// Returns the names that differ from the first, each with its error. A handle and a key can lead to the same
    /// session; a caller that can look them up need not treat them as an error.
    pub fn conflicts(&self) -> impl Iterator<Item = (&Name, NameError)> {
        self.first.iter().flat_map(|first| {
            self.others.iter().map(|other| {
                let (one, other_place) = (first.place.clone(), other.place.clone());
                (&other.name, NameError::TwoSessions { one, other: other_place })
            })
        })
    }

    /// Returns whether an argument names a session, or is malformed.
    #[must_use]
    pub fn is_named_by_argument(&self) -> bool {
        self.named_by_argument
    }

    /// Returns the arguments that are not for the tool.
    pub fn taken_arguments(&self) -> impl Iterator<Item = ArgumentName> + use<> {
        let plain = self.plain_argument.then_some(ArgumentName::Plain);
        plain.into_iter().chain(self.prefixed_argument.then_some(ArgumentName::Prefixed))
    }

    /// Returns whether `_meta` holds a session name.
    #[must_use]
    pub fn is_in_meta(&self) -> bool {
        self.in_meta
    }

    /// Removes the names from their message; `None` if it stays unchanged. All other bytes stay as they were written.
    ///
    /// # Errors
    /// If the part to remove is ambiguous, so that JSON parsers do not agree on it.
    pub fn edit(&self, message: &Message<'_>) -> Result<Option<RequestEdit>, NameError> {
        let mut arguments = self.taken_arguments();
        let (argument, more) = (arguments.next(), arguments.next().is_some());
        if argument.is_none() && !self.in_meta {
            return Ok(None);
        }
        // The usual case: one argument, which occurs once.
        let alone = argument.filter(|_| !more && !self.in_meta);
        if let Some(cut) = alone.and_then(|name| message.without_argument(name.as_str())) {
            return Ok(Some(RequestEdit::Cut(cut)));
        }
        let mut edits = message.edit();
        for argument in self.taken_arguments() {
            edits.remove(&["params", "arguments", argument.as_str()]);
        }
        if self.in_meta {
            let mut members = message.meta().into_iter().flat_map(stayput_wire::Raw::members);
            match members.all(|(name, _)| name.text().as_deref() == Some(meta::SESSION)) {
                true => edits.remove(&["params", meta::META]),
                false => edits.remove(&["params", meta::META, meta::SESSION]),
            };
        }
        Ok(Some(RequestEdit::Edited(edits.apply()?.into_owned())))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stayput_core::Key;

    use super::*;
    use crate::JsonValue;

    fn key(name: Option<Name>) -> Option<String> {
        match name? {
            Name::Key(key) => Some(Key::as_str(&key).to_owned()),
            Name::Handle(_) => Some("handle".to_owned()),
        }
    }

    /// E39, R148: the rule decides which values are for Stayput, for written and for parsed arguments alike.
    #[test]
    fn argument_rule_decides_who_gets_the_value() {
        use ArgumentRule::{Added, Owned, Unknown};
        for (value, rule, taken, named) in [
            (json!("key:x"), Owned, true, Ok(Some("name:x"))),
            (json!("key:x"), Added, true, Ok(Some("name:x"))),
            (json!("key:x"), Unknown, true, Ok(Some("name:x"))),
            (json!(""), Owned, true, Ok(None)),
            (json!(null), Added, true, Ok(None)),
            (json!(""), Unknown, false, Ok(None)),
            (json!("42"), Owned, true, Err("must be a session id")),
            (json!(7), Owned, true, Err("must be a session id")),
            (json!("42"), Added, false, Ok(None)),
            (json!(7), Unknown, false, Ok(None)),
            (json!("sp_x"), Added, true, Err("is not whole")),
        ] {
            let arguments = json!({ "a": 1, "stayput_session_id": value });
            let text = arguments.to_string();
            let raw = JsonValue::Raw(stayput_wire::Raw::parse(&text).unwrap());
            for arguments in [raw, JsonValue::Parsed(&arguments)] {
                let arguments = SessionArguments::from_object(arguments).unwrap();
                let mut names = ExplicitNames::default();
                let read = names.read_argument(arguments, ArgumentName::Prefixed, rule);
                assert_eq!(names.taken_arguments().count(), usize::from(taken), "{text} {rule:?}");
                match (read, named) {
                    (Ok(()), Ok(named)) => {
                        assert_eq!(key(names.into_first()).as_deref(), named, "{text} {rule:?}");
                    }
                    (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                    other => panic!("{text} {rule:?}: {other:?}"),
                }
            }
        }
    }

    /// R161: all sources are one class; names that differ are an error, equal ones are not.
    #[test]
    fn different_names_conflict_whatever_their_source() {
        let mut names = ExplicitNames::default();
        names.read_path("a").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("stayput-session", "key:a".parse().unwrap());
        names.read_header(&headers).unwrap();
        assert_eq!(names.conflicts().count(), 0);
        headers.insert("stayput-session", "key:b".parse().unwrap());
        names.read_header(&headers).unwrap();
        let (_, error) = names.conflicts().next().unwrap();
        let error = error.to_string();
        assert!(error.starts_with("the path and the header Stayput-Session name two"), "{error}");
        assert!(!error.contains("key:"), "{error}");
        headers.insert("stayput-session", "b".parse().unwrap());
        let error = names.read_header(&headers).unwrap_err().to_string();
        assert!(error.contains("must be a session id"), "{error}");
    }

    #[test]
    fn id_becomes_a_key_of_its_place() {
        let mut headers = HeaderMap::new();
        headers.append("x-chat", "7".parse().unwrap());
        headers.append("x-other", "key:7".parse().unwrap());
        headers.append("x-empty", "".parse().unwrap());
        let members = json!({ "chat": "7", "n": 7 });
        let read = |source: &str| {
            let source = CustomSource::parse(source).unwrap();
            let custom = std::slice::from_ref(&source);
            let members = MetaMembers::from_object(JsonValue::Parsed(&members), custom);
            let mut names = ExplicitNames::default();
            let claim = |name: &str| (name == "chat").then_some("7");
            names.read_custom(&source, &headers, &members, claim).unwrap();
            key(names.into_first())
        };
        assert_eq!(read("header:x-chat").as_deref(), Some("header:x-chat:7"));
        assert_eq!(read("header:x-other").as_deref(), Some("name:7"));
        assert_eq!(read("meta:chat").as_deref(), Some("meta:chat:7"));
        assert_eq!(read("claim:chat").as_deref(), Some("claim:chat:7"));
        for nothing in ["header:x-empty", "header:x-none", "meta:n", "claim:n"] {
            assert_eq!(read(nothing), None);
        }
    }

    /// Invariant 10: only the names are removed. `_meta` goes with its only member.
    #[test]
    fn names_are_removed_and_all_other_bytes_stay() {
        let edited = |params: &str| {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":7, "method":"tools/call","params":{params}}}"#);
            let message = Message::parse(text.as_bytes()).unwrap();
            let mut names = ExplicitNames::default();
            if let Some(arguments) = SessionArguments::from_call(&message) {
                for name in [ArgumentName::Plain, ArgumentName::Prefixed] {
                    names.read_argument(arguments, name, ArgumentRule::Unknown).unwrap();
                }
            }
            names.read_meta(&MetaMembers::from_message(&message, &[])).unwrap();
            let edit = names.edit(&message).unwrap()?;
            let again = Message::parse(edit.text().as_bytes()).unwrap();
            assert_eq!(format!("{:?}", edit.message(&message).unwrap()), format!("{again:?}"));
            Some(again.params().unwrap().as_str().to_owned())
        };
        for (params, left) in [
            (r#"{"arguments":{ "a":1.10,"session_id":"key:a" }}"#, r#"{"arguments":{ "a":1.10 }}"#),
            (
                r#"{"arguments":{"session_id":"key:a","stayput_session_id":"key:a","b":1e400}}"#,
                r#"{"arguments":{"b":1e400}}"#,
            ),
            (
                r#"{"arguments":{"session_id":"key:a"},"_meta":{"dev.stayput/session":"key:a"},"x":[ ]}"#,
                r#"{"arguments":{},"x":[ ]}"#,
            ),
            (r#"{"_meta":{"dev.stayput/session":"key:a","x":1.0}}"#, r#"{"_meta":{"x":1.0}}"#),
        ] {
            assert_eq!(edited(params).as_deref(), Some(left), "{params}");
        }
        assert_eq!(edited(r#"{"arguments":{"session_id":"42"},"_meta":{"threadId":"a"}}"#), None);
    }
}

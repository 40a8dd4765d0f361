//! Common members of the parameters.

use crate::{
    Raw,
    json::{self, MemberRange, Members, Scanner},
};

/// Members that nearly every request has. They are found while parsing, so that no byte is scanned twice.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Params<'a> {
    pub(super) name: Option<Raw<'a>>,
    pub(super) arguments: Option<Raw<'a>>,
    pub(super) meta: Option<Raw<'a>>,
    /// Whether `arguments` is duplicated.
    pub(super) duplicate_arguments: bool,
    /// Whether `name` is duplicated, or there in another letter case.
    pub(super) ambiguous_name: bool,
}

impl<'a> Params<'a> {
    /// Finds the members of the object at this offset.
    pub(super) fn find(text: &'a str, at: usize) -> Self {
        let mut found = Self::default();
        let mut members = Members::new(Scanner::starting_at(text, at), 1);
        while let Some(Ok(Some(slot))) = members.as_mut().map(Members::next) {
            found.take(text, &slot);
        }
        found
    }

    /// Records a member. The last of duplicate members counts.
    pub(super) fn take(&mut self, text: &'a str, slot: &MemberRange) {
        let value = || Some(Raw::cut(text, slot.value.clone()));
        match &text[slot.key.clone()] {
            r#""name""# => self.name(value()),
            r#""arguments""# => self.arguments(value()),
            r#""_meta""# => self.meta = value(),
            other => match json::unquote(other).as_deref() {
                Some("name") => self.name(value()),
                Some("arguments") => self.arguments(value()),
                Some("_meta") => self.meta = value(),
                Some(said) => self.ambiguous_name |= json::eq_ignore_case(said, "name"),
                None => {}
            },
        }
    }

    fn name(&mut self, value: Option<Raw<'a>>) {
        self.ambiguous_name |= self.name.is_some();
        self.name = value;
    }

    fn arguments(&mut self, value: Option<Raw<'a>>) {
        self.duplicate_arguments |= self.arguments.is_some();
        self.arguments = value;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::Message;

    const NAMES: [&str; 5] = ["name", "arguments", "_meta", r"n\u0061me", "other"];
    const VALUES: [&str; 5] = ["1", r#"{"name":2}"#, r#""_meta""#, "null", "[ {} ]"];

    proptest! {
        /// Members found while parsing equal those found by a lookup, in any order and spelling.
        #[test]
        fn members_found_while_parsing_equal_a_lookup(
            members in proptest::collection::vec((0..NAMES.len(), 0..VALUES.len()), 0..6),
            escaped in any::<bool>(),
            first in any::<bool>(),
        ) {
            let members: Vec<_> = members
                .into_iter()
                .map(|(name, value)| format!(r#""{}" : {}"#, NAMES[name], VALUES[value]))
                .collect();
            let key = if escaped { r"p\u0061rams" } else { "params" };
            let params = format!(r#""{key}": {{{}}}"#, members.join(" , "));
            let rest = r#""jsonrpc":"2.0","id":1,"method":"m""#;
            let text = match first {
                true => format!("{{{params} , {rest}}}"),
                false => format!("{{{rest},{params}}}"),
            };
            let message = Message::parse(text.as_bytes()).unwrap();
            let params = message.params().unwrap();
            let found = [message.name(), message.arguments(), message.meta()];
            for (found, name) in found.into_iter().zip(["name", "arguments", "_meta"]) {
                let looked = params.find(&[name]);
                prop_assert_eq!(found.map(|it| it.range()), looked.map(|it| it.range()));
            }
        }
    }

    #[test]
    fn duplicate_name_or_other_letter_case_is_ambiguous() {
        for (params, ambiguous) in [
            (r#"{"name":"a"}"#, false),
            (r#"{"n\u0061me":"a","names":"b","arguments":{"name":"c","Name":"d"}}"#, false),
            (r#"{"name":"a","name":"a"}"#, true),
            (r#"{"name":"a","n\u0061me":"b"}"#, true),
            (r#"{"name":"a","NAME":"b"}"#, true),
            (r#"{"N\u0061me":"b"}"#, true),
            (r#"["name","name"]"#, false),
        ] {
            for key in ["params", r"p\u0061rams"] {
                let text = format!(r#"{{"jsonrpc":"2.0","method":"m","{key}":{params}}}"#);
                let message = Message::parse(text.as_bytes()).unwrap();
                assert_eq!(message.has_ambiguous_name(), ambiguous, "{text}");
            }
        }
    }

    #[test]
    fn params_that_are_no_object_have_no_members() {
        for params in ["null", r#"["name"]"#] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#);
            let message = Message::parse(text.as_bytes()).unwrap();
            assert!(message.name().is_none() && message.meta().is_none());
        }
    }
}

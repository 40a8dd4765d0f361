//! Message without one of its arguments.

use std::ops::Range;

use super::{Message, MessageKind, MessageText, Params};
use crate::{
    Id, Raw,
    json::{self, MemberRange, Members, Scanner},
};

/// Text of a message without one argument. All other bytes are unchanged, so the positions of its parts are known
/// without parsing it again.
#[derive(Clone, Debug)]
pub struct TrimmedMessage {
    text: String,
    removed: Range<usize>,
}

impl<'a> Message<'a> {
    /// Removes the argument `name`, if `arguments` is an object that contains it once. In all other cases use
    /// [`Edits`](crate::Edits).
    ///
    /// ```
    /// use stayput_wire::Message;
    ///
    /// let text = r#"{"jsonrpc":"2.0","method":"m","params":{"arguments":{"a":1,"b":2}},"id":7}"#;
    /// let message = Message::parse(text.as_bytes())?;
    /// let cut = message.without_argument("a").unwrap();
    /// let rest = cut.message(&message);
    /// assert_eq!(rest.arguments().unwrap().as_str(), r#"{"b":2}"#);
    /// assert_eq!(&rest.text()[rest.id().unwrap().raw().range()], "7");
    /// assert!(message.without_argument("c").is_none());
    /// # Ok::<(), stayput_wire::MessageError>(())
    /// ```
    #[must_use]
    pub fn without_argument(&self, name: &str) -> Option<TrimmedMessage> {
        let (text, arguments) =
            (self.text(), self.inner.arguments.filter(|_| !self.inner.duplicate_arguments)?);
        let scanner = Scanner::starting_at(text, arguments.range().start);
        let mut members = Members::new(scanner, 1)?;
        let (mut before, mut own, mut next) = (None, None, None);
        while let Some(slot) = members.next().ok()? {
            if json::is_text(&text[slot.key.clone()], name) {
                if own.replace(slot).is_some() {
                    return None;
                }
            } else if own.is_none() {
                before = Some(slot.value.end);
            } else {
                next = next.or(Some(slot.key.start));
            }
        }
        let MemberRange { key, value } = own?;
        // Includes the following comma, or else the preceding one.
        let removed = match (next, before) {
            (Some(next), _) => key.start..next,
            (None, Some(before)) => before..value.end,
            (None, None) => key.start..value.end,
        };
        let mut rest = String::with_capacity(text.len() - removed.len());
        rest.push_str(&text[..removed.start]);
        rest.push_str(&text[removed.end..]);
        Some(TrimmedMessage { text: rest, removed })
    }
}

impl TrimmedMessage {
    /// Returns the remaining text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the remaining text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }

    /// Returns the remaining message. `whole` must be the message that was trimmed.
    #[must_use]
    pub fn message<'m>(&'m self, whole: &'m Message<'_>) -> Message<'m> {
        let moved = |raw: Raw<'_>| self.moved(raw);
        let kind = match &whole.kind {
            MessageKind::Request { id, method, params } => MessageKind::Request {
                id: Id::trusted(moved(id.raw())),
                method: (&**method).into(),
                params: params.map(moved),
            },
            MessageKind::Notification { method, params } => {
                MessageKind::Notification { method: (&**method).into(), params: params.map(moved) }
            }
            // Other kinds have no arguments.
            other => other.clone(),
        };
        let Params { name, arguments, meta, duplicate_arguments, ambiguous_name } = whole.inner;
        let (name, arguments, meta) = (name.map(moved), arguments.map(moved), meta.map(moved));
        Message {
            whole: MessageText(&self.text),
            kind,
            inner: Params { name, arguments, meta, duplicate_arguments, ambiguous_name },
        }
    }

    /// Returns the new position of a value. None of the known values is inside the removed range.
    fn moved(&self, raw: Raw<'_>) -> Raw<'_> {
        let Range { start, end } = raw.range();
        let place = |at: usize| if at > self.removed.start { at - self.removed.len() } else { at };
        Raw::cut(&self.text, place(start)..place(end))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 4] = ["a", r"\u0061", "b", "aa"];

    proptest! {
        /// The result equals that of edits, and that of parsing again.
        #[test]
        fn trimmed_message_equals_a_parsed_one(
            names in proptest::collection::vec(0..NAMES.len(), 0..4),
            spaced in any::<bool>(),
            order in 0..3_usize,
        ) {
            let space = if spaced { " " } else { "" };
            let members: Vec<_> =
                names.iter().map(|at| format!("{space}\"{}\":{at}{space}", NAMES[*at])).collect();
            let arguments = format!(r#""arguments":{{{}}}"#, members.join(","));
            let mut params = [r#""name":"t""#, &arguments, r#""_meta":{"x":1.10}"#];
            params.rotate_left(order);
            let params = format!(r#""params":{{{}}}"#, params.join(","));
            let mut parts = [r#""id":7,"jsonrpc":"2.0""#, &params, r#""method":"m""#];
            parts.rotate_left(order);
            let text = format!("{{{}}}", parts.join(","));
            let message = Message::parse(text.as_bytes()).unwrap();
            let cut = message.without_argument("a");
            let count = names.iter().filter(|at| **at < 2).count();
            prop_assert_eq!(cut.is_some(), count == 1);
            let Some(cut) = cut else { return Ok(()) };
            let mut edits = message.edit();
            edits.remove(&["params", "arguments", "a"]);
            prop_assert_eq!(cut.text(), &*edits.apply().unwrap());
            let (rest, again) =
                (cut.message(&message), Message::parse(cut.text().as_bytes()).unwrap());
            prop_assert_eq!(format!("{rest:?}"), format!("{again:?}"));
        }
    }

    #[test]
    fn arguments_that_are_no_object_are_not_trimmed() {
        for params in
            ["null", "[]", "{}", r#"{"arguments":7}"#, r#"{"arguments":{"a":1},"arguments":{}}"#]
        {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#);
            assert!(Message::parse(text.as_bytes()).unwrap().without_argument("a").is_none());
        }
    }
}

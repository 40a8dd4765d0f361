//! A message from which something was taken out.

use std::ops::Range;

use super::{Kind, Message, Params, Whole};
use crate::{
    Id, Raw,
    json::{self, Members, Scanner, Slot},
};

/// The text of a message from which an argument was taken out. Every other byte is as it was, so where everything
/// stands is known without reading it again.
#[derive(Clone, Debug)]
pub struct Cut {
    text: String,
    gone: Range<usize>,
}

impl<'a> Message<'a> {
    /// The text without the argument `name`, if it stands there once, as it should. What stands there in another way
    /// is for [`Edits`](crate::Edits).
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
    pub fn without_argument(&self, name: &str) -> Option<Cut> {
        let (text, arguments) = (self.text(), self.inner.arguments.filter(|_| !self.inner.twice)?);
        let scanner = Scanner::starting_at(text, arguments.range().start);
        let mut members = Members::of(scanner, 1)?;
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
        let Slot { key, value } = own?;
        // With the comma behind it, or else with the one before.
        let gone = match (next, before) {
            (Some(next), _) => key.start..next,
            (None, Some(before)) => before..value.end,
            (None, None) => key.start..value.end,
        };
        let mut left = String::with_capacity(text.len() - gone.len());
        left.push_str(&text[..gone.start]);
        left.push_str(&text[gone.end..]);
        Some(Cut { text: left, gone })
    }
}

impl Cut {
    /// The text that is left.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text that is left.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }

    /// The message that is left of `whole`, which is the one that this was taken from.
    #[must_use]
    pub fn message<'m>(&'m self, whole: &'m Message<'_>) -> Message<'m> {
        let moved = |raw: Raw<'_>| self.moved(raw);
        let kind = match &whole.kind {
            Kind::Request { id, method, params } => Kind::Request {
                id: Id::known(moved(id.raw())),
                method: (&**method).into(),
                params: params.map(moved),
            },
            Kind::Notification { method, params } => {
                Kind::Notification { method: (&**method).into(), params: params.map(moved) }
            }
            // These have no arguments.
            other => other.clone(),
        };
        let Params { name, arguments, meta, twice, ambiguous_name } = whole.inner;
        let (name, arguments, meta) = (name.map(moved), arguments.map(moved), meta.map(moved));
        Message {
            whole: Whole(&self.text),
            kind,
            inner: Params { name, arguments, meta, twice, ambiguous_name },
        }
    }

    /// Where a value of the whole stands now. None of those that are known stands in what is gone.
    fn moved(&self, raw: Raw<'_>) -> Raw<'_> {
        let Range { start, end } = raw.range();
        let place = |at: usize| if at > self.gone.start { at - self.gone.len() } else { at };
        Raw::cut(&self.text, place(start)..place(end))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 4] = ["a", r"\u0061", "b", "aa"];

    proptest! {
        /// What is left is what edits leave, and is what reading it again finds.
        #[test]
        fn what_is_left_need_not_be_read_again(
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
    fn what_is_no_object_loses_nothing() {
        for params in
            ["null", "[]", "{}", r#"{"arguments":7}"#, r#"{"arguments":{"a":1},"arguments":{}}"#]
        {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#);
            assert!(Message::parse(text.as_bytes()).unwrap().without_argument("a").is_none());
        }
    }
}

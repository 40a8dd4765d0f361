//! The answer to a call.

use std::{borrow::Cow, fmt, ops::Range};

use bytes::Bytes;
use stayput_wire::{Code, Message, MessageKind, Raw};

/// An answer up to this size is copied for its id.
const SMALL: usize = 4 << 10;

/// What a server answered, under the id of who asked. Every other byte is as the server wrote it.
#[derive(Clone)]
pub struct Answer {
    text: Bytes,
    value: Range<usize>,
    failed: bool,
}

impl Answer {
    /// The answer that `message` is, under another id. `None` if it is no answer.
    pub(crate) fn under(message: &Message<'_>, id: &str) -> Option<Self> {
        match Places::of(message)? {
            places @ Places { id: Some(_), .. } => {
                Some(Self::spliced(Cow::Borrowed(message.text().as_bytes()), places, Some(id)))
            }
            // The other side could not read the id, and wrote none or null.
            Places { id: None, .. } => Self::with_added_id(message, id),
        }
    }

    /// The answer that stands in `text`, of which `places` were found, under another id if there is
    /// one. What is owned is edited where it is: the largest answers come that way.
    pub(super) fn spliced(text: Cow<'_, [u8]>, places: Places, id: Option<&str>) -> Self {
        let Places { id: was, mut value, failed } = places;
        let changed = was.zip(id).filter(|(was, id)| text[was.clone()] != *id.as_bytes());
        let Some((was, id)) = changed else {
            return Self { text: text.into_owned().into(), value, failed };
        };
        if value.start >= was.end {
            value = value.start - was.len() + id.len()..value.end - was.len() + id.len();
        }
        let text = match text {
            // A large one is not copied, a small one is: it would have to grow, which takes longer.
            Cow::Owned(mut text) if text.len() > SMALL || id.len() <= was.len() => {
                text.splice(was, id.bytes());
                text
            }
            text => [&text[..was.start], id.as_bytes(), &text[was.end..]].concat(),
        };
        Self { text: text.into(), value, failed }
    }

    fn with_added_id(message: &Message<'_>, id: &str) -> Option<Self> {
        let mut edits = message.edit();
        edits.set(&["id"], id);
        let text = edits.apply().ok()?.into_owned();
        let value = Message::parse(text.as_bytes()).ok()?.error()?.range();
        Some(Self { text: text.into(), value, failed: true })
    }

    /// The whole message.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.text
    }

    /// The whole message, to keep.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.text
    }

    /// The result as it was written, unless the answer is an error.
    #[must_use]
    pub fn result(&self) -> Option<&str> {
        (!self.failed).then(|| self.value())
    }

    /// The error as it was written, if the answer is one.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.failed.then(|| self.value())
    }

    /// The code of the error, if the answer is one.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        Raw::parse(self.error()?).ok()?.find(&["code"])?.integer().map(Code)
    }

    /// The message of the error, if the answer is one that has some.
    #[must_use]
    pub fn error_message(&self) -> Option<String> {
        let error = Raw::parse(self.error()?).ok()?;
        error.find(&["message"])?.text().map(Cow::into_owned)
    }

    fn value(&self) -> &str {
        // It was cut out of a text that was checked.
        str::from_utf8(&self.text[self.value.clone()]).unwrap_or_default()
    }
}

/// Where the parts of an answer stand in its text.
pub(super) struct Places {
    /// Nothing if the other side could not read the id of the request.
    pub(super) id: Option<Range<usize>>,
    value: Range<usize>,
    failed: bool,
}

impl Places {
    /// `None` if `message` is no answer.
    pub(super) fn of(message: &Message<'_>) -> Option<Self> {
        let (id, value, failed) = match message.kind() {
            MessageKind::Response { id, result } => (Some(*id), *result, false),
            MessageKind::Error { id, error } => (*id, *error, true),
            _ => return None,
        };
        Some(Self { id: id.map(|id| id.raw().range()), value: value.range(), failed })
    }
}

impl fmt::Debug for Answer {
    /// Without what was answered: it can hold anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.failed { "error" } else { "result" };
        write!(f, "Answer({what}, {} bytes)", self.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under(text: &str, id: &str) -> Answer {
        Answer::under(&Message::parse(text.as_bytes()).unwrap(), id).unwrap()
    }

    #[test]
    fn an_answer_goes_back_under_the_callers_id() {
        let answer = under(r#"{"jsonrpc":"2.0","id":17,"result":{"n": 1.10}}"#, r#""a\/1""#);
        assert_eq!(answer.as_bytes(), r#"{"jsonrpc":"2.0","id":"a\/1","result":{"n": 1.10}}"#);
        assert_eq!(answer.result(), Some(r#"{"n": 1.10}"#));
        let answer = under(r#"{"result":{},"id":17,"x":1,"jsonrpc":"2.0"}"#, "3");
        assert_eq!(answer.as_bytes(), r#"{"result":{},"id":3,"x":1,"jsonrpc":"2.0"}"#);
        assert_eq!(answer.result(), Some("{}"));
    }

    /// What came in one piece of its own is edited in place, with the same outcome.
    #[test]
    fn an_answer_is_the_same_however_it_came() {
        for said in [
            r#"{"jsonrpc":"2.0","id":17,"result":{"n": 1.10}}"#,
            r#"{"result":{"n": 1.10},"id":17,"x":1,"jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"no"},"id":17}"#,
        ] {
            for id in ["17", "3", r#""a\/1""#] {
                let borrowed = under(said, id);
                let places = Places::of(&Message::parse(said.as_bytes()).unwrap()).unwrap();
                let owned = Answer::spliced(Cow::Owned(said.as_bytes().to_vec()), places, Some(id));
                assert_eq!(owned.as_bytes(), &said.replace("17", id));
                assert_eq!(owned.as_bytes(), borrowed.as_bytes());
                assert_eq!(owned.result(), borrowed.result());
                assert_eq!(owned.error(), borrowed.error());
                assert!(owned.result().or(owned.error()).unwrap().starts_with('{'));
            }
        }
    }

    #[test]
    fn an_error_without_an_id_gets_one() {
        for text in [
            r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"},"id":null}"#,
            r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}"#,
        ] {
            let answer = under(text, "5");
            assert_eq!(answer.code(), Some(Code(-32700)));
            assert_eq!(answer.error_message().as_deref(), Some("no"));
            let message = Message::parse(answer.as_bytes()).unwrap();
            assert_eq!(message.id().unwrap().as_str(), "5");
        }
    }
}

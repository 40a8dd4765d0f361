//! Answer to a call.

use bytes::Bytes;
use stayput_wire::{Code, Message, MessageKind, Raw};
use std::{borrow::Cow, fmt, ops::Range};

/// Answers up to this size are copied to replace the id.
const MAX_COPIED_ANSWER: usize = 4 << 10;

/// Answer of a server, with the id of the caller. All other bytes are as the server wrote them.
#[derive(Clone)]
pub struct Answer {
    text: Bytes,
    value: Range<usize>,
    failed: bool,
}

impl Answer {
    /// Returns `message` with another id. `None` if it is not an answer.
    pub(crate) fn under(message: &Message<'_>, id: &str) -> Option<Self> {
        match AnswerRanges::find(message)? {
            places @ AnswerRanges { id: Some(_), .. } => {
                Some(Self::spliced(Cow::Borrowed(message.text().as_bytes()), places, Some(id)))
            }
            // The server could not read the id, and wrote none or null.
            AnswerRanges { id: None, .. } => Self::with_added_id(message, id),
        }
    }

    /// Returns the answer in `text`, whose parts are at `places`, with `id` if one is given. An owned text is
    /// edited in place, because the largest answers come that way.
    pub(super) fn spliced(text: Cow<'_, [u8]>, places: AnswerRanges, id: Option<&str>) -> Self {
        let AnswerRanges { id: was, mut value, failed } = places;
        let changed = was.zip(id).filter(|(was, id)| text[was.clone()] != *id.as_bytes());
        let Some((was, id)) = changed else {
            return Self { text: text.into_owned().into(), value, failed };
        };
        if value.start >= was.end {
            value = value.start - was.len() + id.len()..value.end - was.len() + id.len();
        }
        let text = match text {
            // Edit a large text in place. Copying a small one is faster than growing it.
            Cow::Owned(mut text) if text.len() > MAX_COPIED_ANSWER || id.len() <= was.len() => {
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

    /// Whole message.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.text
    }

    /// Whole message, owned.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.text
    }

    /// Result as the server wrote it, unless the answer is an error.
    #[must_use]
    pub fn result(&self) -> Option<&str> {
        (!self.failed).then(|| self.value())
    }

    /// Error as the server wrote it, if the answer is one.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.failed.then(|| self.value())
    }

    /// Code of the error, if the answer is one.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        Raw::parse(self.error()?).ok()?.find(&["code"])?.integer().map(Code)
    }

    /// Message of the error, if the answer has one.
    #[must_use]
    pub fn error_message(&self) -> Option<String> {
        let error = Raw::parse(self.error()?).ok()?;
        error.find(&["message"])?.text().map(Cow::into_owned)
    }

    fn value(&self) -> &str {
        // The range lies in a text that was validated.
        str::from_utf8(&self.text[self.value.clone()]).unwrap_or_default()
    }
}

/// Byte ranges of the parts of an answer.
pub(super) struct AnswerRanges {
    /// `None` if the server could not read the id of the request.
    pub(super) id: Option<Range<usize>>,
    value: Range<usize>,
    failed: bool,
}

impl AnswerRanges {
    /// Returns `None` if `message` is not an answer.
    pub(super) fn find(message: &Message<'_>) -> Option<Self> {
        let (id, value, failed) = match message.kind() {
            MessageKind::Response { id, result } => (Some(*id), *result, false),
            MessageKind::Error { id, error } => (*id, *error, true),
            _ => return None,
        };
        Some(Self { id: id.map(|id| id.raw().range()), value: value.range(), failed })
    }
}

impl fmt::Debug for Answer {
    /// Omits the content, which may be confidential.
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
    fn answer_gets_the_id_of_the_caller() {
        let answer = under(r#"{"jsonrpc":"2.0","id":17,"result":{"n": 1.10}}"#, r#""a\/1""#);
        assert_eq!(answer.as_bytes(), r#"{"jsonrpc":"2.0","id":"a\/1","result":{"n": 1.10}}"#);
        assert_eq!(answer.result(), Some(r#"{"n": 1.10}"#));
        let answer = under(r#"{"result":{},"id":17,"x":1,"jsonrpc":"2.0"}"#, "3");
        assert_eq!(answer.as_bytes(), r#"{"result":{},"id":3,"x":1,"jsonrpc":"2.0"}"#);
        assert_eq!(answer.result(), Some("{}"));
    }

    /// Owned texts are edited in place, with the same result.
    #[test]
    fn owned_and_borrowed_answers_are_equal() {
        for text in [
            r#"{"jsonrpc":"2.0","id":17,"result":{"n": 1.10}}"#,
            r#"{"result":{"n": 1.10},"id":17,"x":1,"jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"no"},"id":17}"#,
        ] {
            for id in ["17", "3", r#""a\/1""#] {
                let borrowed = under(text, id);
                let places = AnswerRanges::find(&Message::parse(text.as_bytes()).unwrap()).unwrap();
                let owned = Answer::spliced(Cow::Owned(text.as_bytes().to_vec()), places, Some(id));
                assert_eq!(owned.as_bytes(), &text.replace("17", id));
                assert_eq!(owned.as_bytes(), borrowed.as_bytes());
                assert_eq!(owned.result(), borrowed.result());
                assert_eq!(owned.error(), borrowed.error());
                assert!(owned.result().or(owned.error()).unwrap().starts_with('{'));
            }
        }
    }

    #[test]
    fn error_without_id_gets_the_id_of_the_caller() {
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

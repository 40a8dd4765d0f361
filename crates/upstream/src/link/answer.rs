//! The answer to a call.

use std::{fmt, ops::Range};

use bytes::Bytes;
use stayput_wire::{Code, Kind, Message, Raw};

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
        let (was, value, failed) = match message.kind() {
            Kind::Response { id, result } => (Some(*id), *result, false),
            Kind::Error { id, error } => (*id, *error, true),
            _ => return None,
        };
        let value = value.range();
        match was {
            Some(was) => Some(Self::spliced(message.text(), was.raw().range(), value, id, failed)),
            // The other side could not read the id, and wrote none or null.
            None => Self::with_added_id(message, id),
        }
    }

    fn spliced(text: &str, was: Range<usize>, value: Range<usize>, id: &str, failed: bool) -> Self {
        let mut spliced = Vec::with_capacity(text.len() - was.len() + id.len());
        spliced.extend_from_slice(&text.as_bytes()[..was.start]);
        spliced.extend_from_slice(id.as_bytes());
        spliced.extend_from_slice(&text.as_bytes()[was.end..]);
        let value = if value.start < was.start {
            value
        } else {
            value.start - was.len() + id.len()..value.end - was.len() + id.len()
        };
        Self { text: spliced.into(), value, failed }
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
        error.find(&["message"])?.text().map(std::borrow::Cow::into_owned)
    }

    fn value(&self) -> &str {
        // It was cut out of a text that was checked.
        str::from_utf8(&self.text[self.value.clone()]).unwrap_or_default()
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

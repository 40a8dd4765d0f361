//! The counter-current: what a server asks its client.

use std::{fmt, sync::Weak};

use bytes::Bytes;
use stayput_wire::{Code, IdBuf, Message, json};

use super::Core;

/// A question of the server. Whoever gets it answers it once; dropped, it is refused.
pub struct Asked {
    pub(super) text: Bytes,
    pub(super) id: IdBuf,
    pub(super) method: Box<str>,
    /// Tells it from all other questions on its link: a server may use an id again.
    pub(super) number: u64,
    /// Weak: a question that waits somewhere must not keep a link.
    pub(super) core: Weak<Core>,
    pub(super) answered: bool,
}

impl Asked {
    /// The whole message as the server wrote it, its id included.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// The id that the server gave it. A `notifications/cancelled` that takes it back names this id.
    #[must_use]
    pub fn id(&self) -> &IdBuf {
        &self.id
    }

    /// What it asks for, such as `elicitation/create`.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Answers with a result, which is JSON.
    pub fn reply(self, result: &str) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.id.as_str());
        self.send(&text);
    }

    /// Answers with an error.
    pub fn refuse(self, code: Code, message: &str) {
        let text = refusal(&self.id, code, message);
        self.send(&text);
    }

    /// Answers with what somebody else answered, whatever id it has. What is no answer is refused.
    pub fn pass(self, answer: &[u8]) {
        let answer = Message::parse(answer).ok();
        let answer = answer.and_then(|answer| super::Answer::under(&answer, self.id.as_str()));
        match answer.as_ref().map(|answer| str::from_utf8(answer.as_bytes())) {
            Some(Ok(text)) => self.send(text),
            _ => self.refuse(Code::INTERNAL_ERROR, "the client gave an answer that is none"),
        }
    }

    fn send(mut self, text: &str) {
        self.answered = true;
        if let Some(core) = self.core.upgrade() {
            core.answer_asked(self.number, text);
        }
    }
}

/// The answer to a question that is not answered.
pub(super) fn refusal(id: &IdBuf, code: Code, message: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{},"message":{}}}}}"#,
        id.as_str(),
        code.0,
        json::quote(message)
    )
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.answered
            && let Some(core) = self.core.upgrade()
        {
            let text = refusal(&self.id, Code::METHOD_NOT_FOUND, NOBODY);
            core.answer_asked(self.number, &text);
        }
    }
}

/// What a server is told when there is nobody to ask.
pub(super) const NOBODY: &str = "nobody on this side can answer this request now";

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Asked({} {}, {} bytes)", self.method, self.id.as_str(), self.text.len())
    }
}

//! Requests of a server to its client.

use bytes::Bytes;
use stayput_wire::{Code, IdBuf, Message, json};
use std::{fmt, sync::Weak};

use super::Core;

/// Request of the server. It is answered once; on drop it is refused.
pub struct ServerRequest {
    pub(super) text: Bytes,
    pub(super) id: IdBuf,
    pub(super) method: Box<str>,
    /// Identifies the request on its link, because a server may reuse an id.
    pub(super) number: u64,
    /// Weak, so that a waiting request does not keep the link alive.
    pub(super) core: Weak<Core>,
    pub(super) answered: bool,
}

impl ServerRequest {
    /// Whole message as the server wrote it, with its id.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// Id that the server gave the request. A `notifications/cancelled` names this id.
    #[must_use]
    pub fn id(&self) -> &IdBuf {
        &self.id
    }

    /// Method, such as `elicitation/create`.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Answers with a JSON result.
    pub fn reply(self, result: &str) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.id.as_str());
        self.send(&text);
    }

    /// Answers with an error.
    pub fn refuse(self, code: Code, message: &str) {
        let text = refusal(&self.id, code, message);
        self.send(&text);
    }

    /// Forwards an answer with any id. Refuses the request if `answer` is not an answer.
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

/// Builds an error answer.
pub(super) fn refusal(id: &IdBuf, code: Code, message: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{},"message":{}}}}}"#,
        id.as_str(),
        code.0,
        json::quote(message)
    )
}

impl Drop for ServerRequest {
    fn drop(&mut self) {
        if !self.answered
            && let Some(core) = self.core.upgrade()
        {
            let text = refusal(&self.id, Code::METHOD_NOT_FOUND, NO_CLIENT_CAN_ANSWER);
            core.answer_asked(self.number, &text);
        }
    }
}

/// Error message for the server when no client can answer.
pub(super) const NO_CLIENT_CAN_ANSWER: &str = "no client can answer this request now";

impl fmt::Debug for ServerRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerRequest({} {}, {} bytes)", self.method, self.id.as_str(), self.text.len())
    }
}

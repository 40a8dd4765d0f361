//! JSON-RPC messages, as written.

mod error;
mod params;
mod trimmed;

use std::borrow::Cow;

use crate::{
    Edits, Id, InvalidId, Raw,
    json::{self, MemberRange, Members, Scanner, SyntaxError, SyntaxKind},
};
pub use error::{MessageError, MessageProblem};
use params::Params;
pub use trimmed::TrimmedMessage;

/// Message that was checked but not decoded.
///
/// The text is valid JSON in UTF-8, with an envelope that every reader interprets in the same way: a duplicate member
/// of the envelope, or one in other letter case, is refused, because the server could see another method than
/// Stayput. The content of `params`, `result` and `error` is not checked.
///
/// ```
/// use stayput_wire::{MessageKind, Message};
///
/// let message = Message::parse(br#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#)?;
/// assert_eq!(message.method(), Some("ping"));
/// assert_eq!(message.id().unwrap().as_str(), "\"a\"");
/// assert!(matches!(message.kind(), MessageKind::Request { params: None, .. }));
///
/// let error = Message::parse(br#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#).unwrap_err();
/// assert_eq!(error.code(), stayput_wire::Code::INVALID_REQUEST);
/// assert_eq!(error.id().unwrap().as_str(), "1");
/// # Ok::<(), stayput_wire::MessageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Message<'a> {
    whole: MessageText<'a>,
    kind: MessageKind<'a>,
    inner: Params<'a>,
}

/// Kind of a message. JSON values are kept as written.
#[derive(Debug, Clone)]
pub enum MessageKind<'a> {
    /// Request.
    Request {
        /// Id for the response.
        id: Id<'a>,
        /// Method.
        method: Cow<'a, str>,
        /// Parameters. `null` counts as missing.
        params: Option<Raw<'a>>,
    },
    /// Notification.
    Notification {
        /// Method.
        method: Cow<'a, str>,
        /// Parameters. `null` counts as missing.
        params: Option<Raw<'a>>,
    },
    /// Response.
    Response {
        /// Id of the request.
        id: Id<'a>,
        /// Result.
        result: Raw<'a>,
    },
    /// Error response.
    Error {
        /// Id of the request; missing or `null` if the other side could not read it.
        id: Option<Id<'a>>,
        /// Error object.
        error: Raw<'a>,
    },
}

impl<'a> Message<'a> {
    /// Default limit of a message in bytes: 32 MiB.
    ///
    /// Messages may contain images and documents; anything much larger is a mistake or an attack.
    pub const MAX_BYTES: usize = 32 << 20;

    /// Parses a message of at most [`Message::MAX_BYTES`] bytes.
    ///
    /// # Errors
    /// Returns an error if the bytes are not JSON, or no message. It contains code, position and, if readable, the
    /// id, so that the sender gets an error response.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        Self::parse_within(bytes, Self::MAX_BYTES)
    }

    /// Parses a message of at most `limit` bytes.
    ///
    /// # Errors
    /// Fails like [`Message::parse`].
    pub fn parse_within(bytes: &'a [u8], limit: usize) -> Result<Self, MessageError> {
        if bytes.len() > limit {
            let problem = MessageProblem::TooLarge { size: bytes.len(), limit };
            return Err(MessageError::new(problem, limit));
        }
        let text = json::decode(bytes)?;
        let mut envelope = Envelope::default();
        let kind = match envelope.read(text) {
            Ok(None) => envelope.kind(),
            Ok(Some(error)) => Err(error),
            Err(error) => return Err(envelope.syntax_error(error)),
        };
        match kind {
            Ok(kind) => Ok(Self { whole: MessageText(text), kind, inner: envelope.inner }),
            Err((problem, at)) => {
                let ambiguous_id = matches!(
                    problem,
                    MessageProblem::Twice("id") | MessageProblem::Lookalike("id")
                );
                let id = envelope.readable_id().filter(|_| !ambiguous_id);
                Err(MessageError::new(problem, at).with_id(id))
            }
        }
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> &MessageKind<'a> {
        &self.kind
    }

    /// Returns the whole text as written, including white space around it.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.whole.0
    }

    /// Returns the id of a request or response.
    #[must_use]
    pub fn id(&self) -> Option<Id<'a>> {
        match &self.kind {
            MessageKind::Request { id, .. } | MessageKind::Response { id, .. } => Some(*id),
            MessageKind::Error { id, .. } => *id,
            MessageKind::Notification { .. } => None,
        }
    }

    /// Returns the method of a request or notification.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        match &self.kind {
            MessageKind::Request { method, .. } | MessageKind::Notification { method, .. } => {
                Some(method)
            }
            _ => None,
        }
    }

    /// Returns the parameters of a request or notification.
    #[must_use]
    pub fn params(&self) -> Option<Raw<'a>> {
        match &self.kind {
            MessageKind::Request { params, .. } | MessageKind::Notification { params, .. } => {
                *params
            }
            _ => None,
        }
    }

    /// Returns the member `name` of the parameters: the tool or prompt. It was found while parsing. The last of
    /// duplicate members counts.
    #[must_use]
    pub fn name(&self) -> Option<Raw<'a>> {
        self.inner.name
    }

    /// Says whether a reader can find another `name` than [`Message::name`] does: the member is duplicated, or there in
    /// another letter case.
    #[must_use]
    pub fn has_ambiguous_name(&self) -> bool {
        self.inner.ambiguous_name
    }

    /// Returns the member `arguments` of the parameters.
    #[must_use]
    pub fn arguments(&self) -> Option<Raw<'a>> {
        self.inner.arguments
    }

    /// Returns the member `_meta` of the parameters.
    #[must_use]
    pub fn meta(&self) -> Option<Raw<'a>> {
        self.inner.meta
    }

    /// Returns the result of a response.
    #[must_use]
    pub fn result(&self) -> Option<Raw<'a>> {
        match &self.kind {
            MessageKind::Response { result, .. } => Some(*result),
            _ => None,
        }
    }

    /// Returns the error object of an error response.
    #[must_use]
    pub fn error(&self) -> Option<Raw<'a>> {
        match &self.kind {
            MessageKind::Error { error, .. } => Some(*error),
            _ => None,
        }
    }

    /// Starts edits of this message.
    #[must_use]
    pub fn edit(&self) -> Edits<'a> {
        Edits::new(self.text())
    }
}

/// Text of a message. `Debug` omits it, because it may contain secrets.
#[derive(Clone)]
struct MessageText<'a>(&'a str);

impl std::fmt::Debug for MessageText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// Problem of an envelope, and its offset.
type EnvelopeError = (MessageProblem, usize);

/// Members of an envelope, before they are checked together.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<Raw<'a>>,
    id: Option<Raw<'a>>,
    method: Option<Raw<'a>>,
    params: Option<Raw<'a>>,
    result: Option<Raw<'a>>,
    error: Option<Raw<'a>>,
    inner: Params<'a>,
    start: usize,
}

impl<'a> Envelope<'a> {
    /// Reads the whole text, so that a syntax error is always reported first, and the id is found at any position.
    fn read(&mut self, text: &'a str) -> Result<Option<EnvelopeError>, SyntaxError> {
        let mut scanner = Scanner::new(text);
        self.start = scanner.at();
        let mut error = None;
        if let Some(mut members) = Members::new(scanner.clone(), 0) {
            while let Some(key) = members.next_key()? {
                let value = match &text[key.clone()] {
                    r#""params""# => members.value_with(|slot| self.inner.take(text, &slot))?,
                    _ => members.value()?,
                };
                let result = self.take(text, MemberRange { key, value });
                error = error.or(result.err());
            }
            scanner = members.into_scanner();
        } else {
            let batch = scanner.peek() == Some(b'[');
            scanner.value(0)?;
            let problem = if batch { MessageProblem::Batch } else { MessageProblem::NotAnObject };
            error = Some((problem, self.start));
        }
        scanner.end()?;
        Ok(error)
    }

    fn take(&mut self, text: &'a str, slot: MemberRange) -> Result<(), EnvelopeError> {
        let at = slot.key.start;
        // Nearly all keys are written without escapes.
        let part = match &text[slot.key.clone()] {
            r#""jsonrpc""# => Some(("jsonrpc", &mut self.jsonrpc)),
            r#""id""# => Some(("id", &mut self.id)),
            r#""method""# => Some(("method", &mut self.method)),
            r#""params""# => Some(("params", &mut self.params)),
            r#""result""# => Some(("result", &mut self.result)),
            r#""error""# => Some(("error", &mut self.error)),
            _ => None,
        };
        if let Some((name, part)) = part {
            let before = part.replace(Raw::cut(text, slot.value));
            return before.map_or(Ok(()), |_| Err((MessageProblem::Twice(name), at)));
        }
        self.take_other(text, slot)
    }

    /// Handles a member that may be part of the envelope in another spelling.
    fn take_other(&mut self, text: &'a str, slot: MemberRange) -> Result<(), EnvelopeError> {
        let at = slot.key.start;
        let Some(name_read) = json::unquote(&text[slot.key]) else { return Ok(()) };
        let parts = [
            ("jsonrpc", &mut self.jsonrpc),
            ("id", &mut self.id),
            ("method", &mut self.method),
            ("params", &mut self.params),
            ("result", &mut self.result),
            ("error", &mut self.error),
        ];
        for (name, part) in parts {
            if name_read == name {
                if name == "params" {
                    self.inner = Params::find(text, slot.value.start);
                }
                let before = part.replace(Raw::cut(text, slot.value));
                return before.map_or(Ok(()), |_| Err((MessageProblem::Twice(name), at)));
            }
            if json::eq_ignore_case(&name_read, name) {
                return Err((MessageProblem::Lookalike(name), at));
            }
        }
        Ok(())
    }

    fn kind(&self) -> Result<MessageKind<'a>, EnvelopeError> {
        match self.jsonrpc {
            None => return Err((MessageProblem::NoVersion, self.start)),
            Some(raw) if json::is_text(raw.as_str(), "2.0") => {}
            Some(raw) => return Err((MessageProblem::NoVersion, raw.range().start)),
        }
        match (self.method, self.result, self.error) {
            (Some(method), None, None) => self.call(method),
            (None, Some(result), None) => {
                let raw = self.id.ok_or((MessageProblem::NoId, self.start))?;
                Ok(MessageKind::Response { id: Self::read_id(raw)?, result })
            }
            (None, None, Some(error)) if error.is_object() => {
                let id = self.id.filter(|id| !id.is_null());
                Ok(MessageKind::Error { id: id.map(Self::read_id).transpose()?, error })
            }
            (None, None, Some(error)) => Err((MessageProblem::Error, error.range().start)),
            (None, None, None) => Err((MessageProblem::Nothing, self.start)),
            _ => Err((MessageProblem::Mixed, self.start)),
        }
    }

    fn call(&self, method: Raw<'a>) -> Result<MessageKind<'a>, EnvelopeError> {
        let name = method.text().ok_or((MessageProblem::Method, method.range().start))?;
        let params = self.params.filter(|params| !params.is_null());
        if let Some(params) = params.filter(|params| !params.is_object() && !params.is_array()) {
            return Err((MessageProblem::Params, params.range().start));
        }
        match self.id {
            None => Ok(MessageKind::Notification { method: name, params }),
            Some(id) => Ok(MessageKind::Request { id: Self::read_id(id)?, method: name, params }),
        }
    }

    /// Invalid JSON has no reliable id. A text that nests too deep is valid as far as it was read, and its sender
    /// waits for a response.
    fn syntax_error(&self, error: SyntaxError) -> MessageError {
        let deep = error.kind() == SyntaxKind::Depth;
        MessageError::from(error).with_id(self.readable_id().filter(|_| deep))
    }

    fn readable_id(&self) -> Option<Id<'a>> {
        self.id.and_then(|id| Id::read(id).ok())
    }

    fn read_id(raw: Raw<'a>) -> Result<Id<'a>, EnvelopeError> {
        Id::read(raw).map_err(|invalid: InvalidId| (MessageProblem::Id(invalid), raw.range().start))
    }
}

#[cfg(test)]
mod tests;

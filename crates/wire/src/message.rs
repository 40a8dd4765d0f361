//! One message of JSON-RPC, as it was written.

mod cut;
mod invalid;
mod params;

use std::borrow::Cow;

use crate::{
    Edits, Id, InvalidId, Raw,
    json::{self, Members, Scanner, Slot, SyntaxError, SyntaxKind},
};
pub use cut::Cut;
pub use invalid::{MessageError, Problem};
use params::Params;

/// A message that was checked but not decoded.
///
/// The whole text is known to be JSON in UTF-8 and an envelope that everybody reads in the same way:
/// a member of the envelope that stands there twice, or once more in other letter case, would let
/// somebody show one method to us and another to the server, so it is refused. Everything inside
/// `params`, `result` and `error` stays as it is.
///
/// ```
/// use stayput_wire::{Kind, Message};
///
/// let message = Message::parse(br#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#)?;
/// assert_eq!(message.method(), Some("ping"));
/// assert_eq!(message.id().unwrap().as_str(), "\"a\"");
/// assert!(matches!(message.kind(), Kind::Request { params: None, .. }));
///
/// let error = Message::parse(br#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#).unwrap_err();
/// assert_eq!(error.code(), stayput_wire::Code::INVALID_REQUEST);
/// assert_eq!(error.id().unwrap().as_str(), "1");
/// # Ok::<(), stayput_wire::MessageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Message<'a> {
    whole: Whole<'a>,
    kind: Kind<'a>,
    inner: Params<'a>,
}

/// What a message is. JSON values stand there as they were written.
#[derive(Debug, Clone)]
pub enum Kind<'a> {
    /// Asks for an answer.
    Request {
        /// What the answer has to carry.
        id: Id<'a>,
        /// What is asked for.
        method: Cow<'a, str>,
        /// With what. `null` counts as nothing.
        params: Option<Raw<'a>>,
    },
    /// Tells something.
    Notification {
        /// What happened.
        method: Cow<'a, str>,
        /// To what. `null` counts as nothing.
        params: Option<Raw<'a>>,
    },
    /// Answers a request.
    Response {
        /// The id of the request.
        id: Id<'a>,
        /// The answer.
        result: Raw<'a>,
    },
    /// Answers a request with its failure.
    Error {
        /// The id of the request; nothing or `null` if the other side could not read it.
        id: Option<Id<'a>>,
        /// The failure, an object.
        error: Raw<'a>,
    },
}

impl<'a> Message<'a> {
    /// The most bytes a message may have, unless another limit is given: 32 MiB.
    ///
    /// Pictures and documents travel inside messages; much more than that is a mistake, or worse.
    pub const SIZE_LIMIT: usize = 32 << 20;

    /// Reads a message of at most [`Message::SIZE_LIMIT`] bytes.
    ///
    /// # Errors
    /// If it is not JSON, or not a message. The error knows its code, its place, and the id if there
    /// is one, so that it can be answered.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        Self::parse_within(bytes, Self::SIZE_LIMIT)
    }

    /// Reads a message of at most `limit` bytes.
    ///
    /// # Errors
    /// As for [`Message::parse`].
    pub fn parse_within(bytes: &'a [u8], limit: usize) -> Result<Self, MessageError> {
        if bytes.len() > limit {
            let problem = Problem::TooLarge { size: bytes.len(), limit };
            return Err(MessageError::new(problem, limit));
        }
        let text = json::decode(bytes)?;
        let mut envelope = Envelope::default();
        let judged = match envelope.read(text) {
            Ok(None) => envelope.kind(),
            Ok(Some(complaint)) => Err(complaint),
            Err(error) => return Err(envelope.broken(error)),
        };
        match judged {
            Ok(kind) => Ok(Self { whole: Whole(text), kind, inner: envelope.inner }),
            Err((problem, at)) => {
                let doubtful = matches!(problem, Problem::Twice("id") | Problem::Lookalike("id"));
                let id = envelope.readable_id().filter(|_| !doubtful);
                Err(MessageError::new(problem, at).with_id(id))
            }
        }
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> &Kind<'a> {
        &self.kind
    }

    /// The whole message as it was written, white space around it included.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.whole.0
    }

    /// The id of a request, or of the request that is answered.
    #[must_use]
    pub fn id(&self) -> Option<Id<'a>> {
        match &self.kind {
            Kind::Request { id, .. } | Kind::Response { id, .. } => Some(*id),
            Kind::Error { id, .. } => *id,
            Kind::Notification { .. } => None,
        }
    }

    /// The method of a request or notification.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        match &self.kind {
            Kind::Request { method, .. } | Kind::Notification { method, .. } => Some(method),
            _ => None,
        }
    }

    /// The parameters of a request or notification.
    #[must_use]
    pub fn params(&self) -> Option<Raw<'a>> {
        match &self.kind {
            Kind::Request { params, .. } | Kind::Notification { params, .. } => *params,
            _ => None,
        }
    }

    /// The member `name` of the parameters: the tool or the prompt that is meant. As everything that is asked for
    /// here, it was found when the message was read; of members with one name the last counts.
    #[must_use]
    pub fn name(&self) -> Option<Raw<'a>> {
        self.inner.name
    }

    /// Whether a reader can find another `name` than [`Message::name`] does: it stands there twice, or in another
    /// letter case.
    #[must_use]
    pub fn has_ambiguous_name(&self) -> bool {
        self.inner.ambiguous_name
    }

    /// The member `arguments` of the parameters.
    #[must_use]
    pub fn arguments(&self) -> Option<Raw<'a>> {
        self.inner.arguments
    }

    /// The member `_meta` of the parameters.
    #[must_use]
    pub fn meta(&self) -> Option<Raw<'a>> {
        self.inner.meta
    }

    /// The result of a response.
    #[must_use]
    pub fn result(&self) -> Option<Raw<'a>> {
        match &self.kind {
            Kind::Response { result, .. } => Some(*result),
            _ => None,
        }
    }

    /// The failure that an error tells.
    #[must_use]
    pub fn error(&self) -> Option<Raw<'a>> {
        match &self.kind {
            Kind::Error { error, .. } => Some(*error),
            _ => None,
        }
    }

    /// No edits of this message so far.
    #[must_use]
    pub fn edit(&self) -> Edits<'a> {
        Edits::new(self.text())
    }
}

/// The whole text, which `Debug` does not show: it can hold secrets.
#[derive(Clone)]
struct Whole<'a>(&'a str);

impl std::fmt::Debug for Whole<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What is wrong with an envelope, and at which byte.
type Complaint = (Problem, usize);

/// The members of an envelope, before anybody asked whether they belong together.
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
    /// Reads the whole text, so that a text that is not JSON is always told as such, and the id is
    /// found wherever it stands.
    fn read(&mut self, text: &'a str) -> Result<Option<Complaint>, SyntaxError> {
        let mut scanner = Scanner::new(text);
        self.start = scanner.at();
        let mut complaint = None;
        if let Some(mut members) = Members::of(scanner.clone(), 0) {
            while let Some(key) = members.next_key()? {
                let value = match &text[key.clone()] {
                    r#""params""# => members.value_with(|slot| self.inner.take(text, &slot))?,
                    _ => members.value()?,
                };
                let told = self.take(text, Slot { key, value });
                complaint = complaint.or(told.err());
            }
            scanner = members.behind();
        } else {
            let batch = scanner.peek() == Some(b'[');
            scanner.value(0)?;
            let problem = if batch { Problem::Batch } else { Problem::NotAnObject };
            complaint = Some((problem, self.start));
        }
        scanner.end()?;
        Ok(complaint)
    }

    fn take(&mut self, text: &'a str, slot: Slot) -> Result<(), Complaint> {
        let at = slot.key.start;
        // Spelled as it should be, as nearly always.
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
            return before.map_or(Ok(()), |_| Err((Problem::Twice(name), at)));
        }
        self.take_other(text, slot)
    }

    /// A member that may still be one of ours, in another spelling.
    fn take_other(&mut self, text: &'a str, slot: Slot) -> Result<(), Complaint> {
        let at = slot.key.start;
        let Some(said) = json::unquote(&text[slot.key]) else { return Ok(()) };
        let parts = [
            ("jsonrpc", &mut self.jsonrpc),
            ("id", &mut self.id),
            ("method", &mut self.method),
            ("params", &mut self.params),
            ("result", &mut self.result),
            ("error", &mut self.error),
        ];
        for (name, part) in parts {
            if said == name {
                if name == "params" {
                    self.inner = Params::of(text, slot.value.start);
                }
                let before = part.replace(Raw::cut(text, slot.value));
                return before.map_or(Ok(()), |_| Err((Problem::Twice(name), at)));
            }
            if json::is_same_in_any_case(&said, name) {
                return Err((Problem::Lookalike(name), at));
            }
        }
        Ok(())
    }

    fn kind(&self) -> Result<Kind<'a>, Complaint> {
        match self.jsonrpc {
            None => return Err((Problem::NoVersion, self.start)),
            Some(raw) if json::is_text(raw.as_str(), "2.0") => {}
            Some(raw) => return Err((Problem::NoVersion, raw.range().start)),
        }
        match (self.method, self.result, self.error) {
            (Some(method), None, None) => self.call(method),
            (None, Some(result), None) => {
                let raw = self.id.ok_or((Problem::NoId, self.start))?;
                Ok(Kind::Response { id: Self::read_id(raw)?, result })
            }
            (None, None, Some(error)) if error.is_object() => {
                let id = self.id.filter(|id| !id.is_null());
                Ok(Kind::Error { id: id.map(Self::read_id).transpose()?, error })
            }
            (None, None, Some(error)) => Err((Problem::Error, error.range().start)),
            (None, None, None) => Err((Problem::Nothing, self.start)),
            _ => Err((Problem::Mixed, self.start)),
        }
    }

    fn call(&self, method: Raw<'a>) -> Result<Kind<'a>, Complaint> {
        let name = method.text().ok_or((Problem::Method, method.range().start))?;
        let params = self.params.filter(|params| !params.is_null());
        if let Some(params) = params.filter(|params| !params.is_object() && !params.is_array()) {
            return Err((Problem::Params, params.range().start));
        }
        match self.id {
            None => Ok(Kind::Notification { method: name, params }),
            Some(id) => Ok(Kind::Request { id: Self::read_id(id)?, method: name, params }),
        }
    }

    /// A text that is not JSON is nobody's. One that nests too deep is JSON as far as it was read, and
    /// whoever sent it waits.
    fn broken(&self, error: SyntaxError) -> MessageError {
        let deep = error.kind() == SyntaxKind::Depth;
        MessageError::from(error).with_id(self.readable_id().filter(|_| deep))
    }

    fn readable_id(&self) -> Option<Id<'a>> {
        self.id.and_then(|id| Id::read(id).ok())
    }

    fn read_id(raw: Raw<'a>) -> Result<Id<'a>, Complaint> {
        Id::read(raw).map_err(|invalid: InvalidId| (Problem::Id(invalid), raw.range().start))
    }
}

#[cfg(test)]
mod tests;

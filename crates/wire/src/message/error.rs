//! Errors of invalid messages, and the response to them.

use crate::{
    Code, Id, IdBuf, InvalidId,
    json::{self, MAX_DEPTH, SyntaxError, SyntaxKind},
};

/// Invalid message: problem, offset and id.
///
/// The bytes are not repeated, except for the id, because they may contain secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (byte {at})")]
pub struct MessageError {
    problem: MessageProblem,
    at: usize,
    id: Option<IdBuf>,
}

/// Problem of a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageProblem {
    /// Text that is not JSON.
    #[error("the message is not JSON: {0}")]
    Syntax(SyntaxKind),
    /// JSON that nests too deep.
    #[error("the message nests deeper than {MAX_DEPTH} levels; make it flatter")]
    TooDeep,
    /// Message over the size limit.
    #[error("the message has {size} bytes; at most {limit} are allowed")]
    TooLarge {
        /// Size in bytes.
        size: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// JSON that is no object.
    #[error("a message must be a JSON object")]
    NotAnObject,
    /// Batch, which only 2025-03-26 allows.
    #[error("the message is a batch; send its messages one by one")]
    Batch,
    /// Message that is no batch.
    #[error("a batch must be a JSON array")]
    NotABatch,
    /// Empty batch.
    #[error("a batch must have at least one message")]
    EmptyBatch,
    /// Batch with too many messages.
    #[error("a batch must have at most {limit} messages; send several")]
    LongBatch {
        /// Limit of messages.
        limit: usize,
    },
    /// A member of the envelope is duplicated.
    #[error("'{0}' stands in the message twice; send it once")]
    Twice(&'static str),
    /// A member of the envelope is spelled in other letter case, which some readers accept.
    #[error("a member of the message looks like '{0}' but is spelled differently; spell it so")]
    Lookalike(&'static str),
    /// `"jsonrpc": "2.0"` is missing.
    #[error("a message must have 'jsonrpc' with the value '2.0'")]
    NoVersion,
    /// The method is no string.
    #[error("'method' must be a string")]
    Method,
    /// The parameters are not an object.
    #[error("'params' must be an object")]
    Params,
    /// The error is not an object.
    #[error("'error' must be an object")]
    Error,
    /// The id is invalid.
    #[error(transparent)]
    Id(InvalidId),
    /// A response without the id of its request.
    #[error("a response must have the 'id' of its request")]
    NoId,
    /// More than one of method, result and error.
    #[error("a message must have one of 'method', 'result' and 'error', not several")]
    Mixed,
    /// Object without method, result and error.
    #[error("a message must have one of 'method', 'result' and 'error'")]
    Nothing,
}

impl MessageError {
    pub(crate) fn new(problem: MessageProblem, at: usize) -> Self {
        Self { problem, at, id: None }
    }

    pub(crate) fn with_id(self, id: Option<Id<'_>>) -> Self {
        Self { id: id.map(Id::to_buf), ..self }
    }

    /// Returns the problem.
    #[must_use]
    pub fn problem(&self) -> &MessageProblem {
        &self.problem
    }

    /// Returns the offset of the problem.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the id, if the message is JSON and has a readable one.
    #[must_use]
    pub fn id(&self) -> Option<&IdBuf> {
        self.id.as_ref()
    }

    /// Returns the code of the error response.
    #[must_use]
    pub fn code(&self) -> Code {
        match self.problem {
            MessageProblem::Syntax(_) => Code::PARSE_ERROR,
            _ => Code::INVALID_REQUEST,
        }
    }

    /// Returns the error response.
    ///
    /// ```
    /// use stayput_wire::Message;
    ///
    /// let error = Message::parse(br#"{"jsonrpc":"2.0","id":"a"}"#).unwrap_err();
    /// assert!(error.answer().starts_with(r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32600,"#));
    /// ```
    #[must_use]
    pub fn answer(&self) -> String {
        let id = self.id().map_or("null", IdBuf::as_str);
        let (code, message) = (self.code(), json::quote(&self.to_string()));
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
    }
}

impl From<SyntaxError> for MessageError {
    fn from(error: SyntaxError) -> Self {
        let problem = match error.kind() {
            SyntaxKind::Depth => MessageProblem::TooDeep,
            kind => MessageProblem::Syntax(kind),
        };
        Self::new(problem, error.at())
    }
}

//! What is wrong with a message, and how to answer it.

use crate::{
    Code, Id, IdBuf, InvalidId,
    json::{self, DEPTH_LIMIT, SyntaxError, SyntaxKind},
};

/// Bytes that are not a message: what is wrong, where, and who waits for an answer.
///
/// The bytes themselves are not repeated, but for the id: they can hold secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (byte {at})")]
pub struct MessageError {
    problem: Problem,
    at: usize,
    id: Option<IdBuf>,
}

/// What can be wrong with a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It is not JSON.
    #[error("the message is not JSON: {0}")]
    Syntax(SyntaxKind),
    /// It nests too deep to be read by everybody.
    #[error("the message nests deeper than {DEPTH_LIMIT} levels; make it flatter")]
    TooDeep,
    /// It is too large.
    #[error("the message has {size} bytes; at most {limit} are allowed")]
    TooLarge {
        /// How many bytes it has.
        size: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// It is a number, a string or the like.
    #[error("a message must be a JSON object")]
    NotAnObject,
    /// It is a batch, which only 2025-03-26 knows.
    #[error("the message is a batch; send its messages one by one")]
    Batch,
    /// A batch was expected.
    #[error("a batch must be a JSON array")]
    NotABatch,
    /// It is a batch of nothing.
    #[error("a batch must have at least one message")]
    EmptyBatch,
    /// It is a batch of too many messages.
    #[error("a batch must have at most {limit} messages; send several")]
    LongBatch {
        /// How many messages are allowed.
        limit: usize,
    },
    /// A member of the envelope stands there twice.
    #[error("'{0}' stands in the message twice; send it once")]
    Twice(&'static str),
    /// A member of the envelope is spelled with other letters, which some readers do not mind.
    #[error("a member of the message looks like '{0}' but is spelled differently; spell it so")]
    Lookalike(&'static str),
    /// `"jsonrpc": "2.0"` is missing.
    #[error("a message must have 'jsonrpc' with the value '2.0'")]
    NoVersion,
    /// The method is not text.
    #[error("'method' must be a string")]
    Method,
    /// The parameters are neither an object nor an array.
    #[error("'params' must be an object")]
    Params,
    /// The failure is not an object.
    #[error("'error' must be an object")]
    Error,
    /// The id cannot be one.
    #[error(transparent)]
    Id(InvalidId),
    /// A response without the id of its request.
    #[error("a response must have the 'id' of its request")]
    NoId,
    /// More than one of method, result and error.
    #[error("a message must have one of 'method', 'result' and 'error', not several")]
    Mixed,
    /// None of method, result and error.
    #[error("a message must have one of 'method', 'result' and 'error'")]
    Nothing,
}

impl MessageError {
    pub(crate) fn new(problem: Problem, at: usize) -> Self {
        Self { problem, at, id: None }
    }

    pub(crate) fn with_id(self, id: Option<Id<'_>>) -> Self {
        Self { id: id.map(Id::to_buf), ..self }
    }

    /// What is wrong.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// At which byte.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// The id of the message, if it is JSON and has one that can be read.
    #[must_use]
    pub fn id(&self) -> Option<&IdBuf> {
        self.id.as_ref()
    }

    /// The code it is to be answered with.
    #[must_use]
    pub fn code(&self) -> Code {
        match self.problem {
            Problem::Syntax(_) => Code::PARSE_ERROR,
            _ => Code::INVALID_REQUEST,
        }
    }

    /// The whole answer, for a front that has nothing to add.
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
            SyntaxKind::Depth => Problem::TooDeep,
            kind => Problem::Syntax(kind),
        };
        Self::new(problem, error.at())
    }
}

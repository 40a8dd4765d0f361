//! JSON-RPC batches.

use crate::{MessageError, MessageProblem, Raw, json};

/// A JSON-RPC batch, split into its messages. Only revision 2025-03-26 has batches.
///
/// The messages are not parsed: an invalid one gets its own error response.
///
/// ```
/// use stayput_wire::{Batch, Message};
///
/// let body = br#"[{"jsonrpc":"2.0","method":"a"}, 7]"#;
/// assert!(Batch::is_batch(body));
/// let batch = Batch::split(body)?;
/// let read: Vec<_> = batch.messages().map(|one| Message::parse(one.as_bytes())).collect();
/// assert!(read[0].is_ok() && read[1].is_err());
/// # Ok::<(), stayput_wire::MessageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Batch<'a> {
    messages: Vec<Raw<'a>>,
}

impl<'a> Batch<'a> {
    /// Most messages of a batch. Two bytes of a batch can cause a response of two hundred.
    pub const MAX_MESSAGES: usize = 1024;

    /// Returns whether `bytes` start like a batch.
    #[must_use]
    pub fn is_batch(bytes: &[u8]) -> bool {
        bytes.iter().find(|byte| !b" \t\r\n".contains(byte)) == Some(&b'[')
    }

    /// Splits the batch in `bytes`.
    ///
    /// # Errors
    /// Returns an error if the bytes are no JSON array, or the batch is empty, too large or has too many messages.
    pub fn split(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let limit = crate::Message::MAX_BYTES;
        if bytes.len() > limit {
            let problem = MessageProblem::TooLarge { size: bytes.len(), limit };
            return Err(MessageError::new(problem, limit));
        }
        let whole = json::decode(bytes).and_then(Raw::parse).map_err(MessageError::from)?;
        let at = whole.range().start;
        if !whole.is_array() {
            return Err(MessageError::new(MessageProblem::NotABatch, at));
        }
        let messages: Vec<_> = whole.elements().take(Self::MAX_MESSAGES + 1).collect();
        match messages.len() {
            0 => Err(MessageError::new(MessageProblem::EmptyBatch, at)),
            1..=Self::MAX_MESSAGES => Ok(Self { messages }),
            _ => {
                Err(MessageError::new(MessageProblem::LongBatch { limit: Self::MAX_MESSAGES }, at))
            }
        }
    }

    /// Returns the number of messages, which is at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a batch of nothing is refused")]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns the bytes of each message, in order.
    pub fn messages(&self) -> impl Iterator<Item = &'a str> {
        self.messages.iter().map(|message| message.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_bytes() {
        let batch = Batch::split(b" [ {\"a\": 1.10} ,[1,2], \"],[\" ] ").unwrap();
        let messages: Vec<_> = batch.messages().collect();
        assert_eq!(messages, ["{\"a\": 1.10}", "[1,2]", "\"],[\""]);
        assert_eq!(batch.len(), 3);
    }

    #[test]
    fn invalid_batch_is_refused() {
        let problem = |bytes: &[u8]| Batch::split(bytes).unwrap_err().problem().clone();
        assert_eq!(problem(b"{}"), MessageProblem::NotABatch);
        assert_eq!(problem(b" [ ] "), MessageProblem::EmptyBatch);
        let long = format!("[{}0]", "0,".repeat(1024));
        assert_eq!(problem(long.as_bytes()), MessageProblem::LongBatch { limit: 1024 });
        assert!(matches!(problem(b"[1"), MessageProblem::Syntax(_)));
        assert!(matches!(problem(b"[\"\xff\"]"), MessageProblem::Syntax(_)));
        assert!(!Batch::is_batch(b" {}") && !Batch::is_batch(b""));
    }
}

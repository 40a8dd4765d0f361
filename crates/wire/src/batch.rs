//! Several messages in one.

use crate::{MessageError, Problem, Raw, json};

/// A JSON-RPC batch, which only revision 2025-03-26 knows, as the messages it is made of.
///
/// The messages are not looked at: each may be wrong on its own and is then answered on its own.
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
    /// The most messages a batch may have. Two bytes can ask for an answer of two hundred.
    pub const LIMIT: usize = 1024;

    /// Whether `bytes` begin as a batch does, so that [`Batch::split`] is to be asked.
    #[must_use]
    pub fn is_batch(bytes: &[u8]) -> bool {
        bytes.iter().find(|byte| !b" \t\r\n".contains(byte)) == Some(&b'[')
    }

    /// The messages of the batch in `bytes`.
    ///
    /// # Errors
    /// If it is not JSON, not an array, empty, too large or of too many messages.
    pub fn split(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let limit = crate::Message::SIZE_LIMIT;
        if bytes.len() > limit {
            let problem = Problem::TooLarge { size: bytes.len(), limit };
            return Err(MessageError::new(problem, limit));
        }
        let whole = json::decode(bytes).and_then(Raw::parse).map_err(MessageError::from)?;
        let at = whole.range().start;
        if !whole.is_array() {
            return Err(MessageError::new(Problem::NotABatch, at));
        }
        let messages: Vec<_> = whole.elements().take(Self::LIMIT + 1).collect();
        match messages.len() {
            0 => Err(MessageError::new(Problem::EmptyBatch, at)),
            1..=Self::LIMIT => Ok(Self { messages }),
            _ => Err(MessageError::new(Problem::LongBatch { limit: Self::LIMIT }, at)),
        }
    }

    /// How many messages it has, at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a batch of nothing is refused")]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// The bytes of each message, in their order.
    pub fn messages(&self) -> impl Iterator<Item = &'a str> {
        self.messages.iter().map(|message| message.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_each_message_are_kept() {
        let batch = Batch::split(b" [ {\"a\": 1.10} ,[1,2], \"],[\" ] ").unwrap();
        let messages: Vec<_> = batch.messages().collect();
        assert_eq!(messages, ["{\"a\": 1.10}", "[1,2]", "\"],[\""]);
        assert_eq!(batch.len(), 3);
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        let problem = |bytes: &[u8]| Batch::split(bytes).unwrap_err().problem().clone();
        assert_eq!(problem(b"{}"), Problem::NotABatch);
        assert_eq!(problem(b" [ ] "), Problem::EmptyBatch);
        let long = format!("[{}0]", "0,".repeat(1024));
        assert_eq!(problem(long.as_bytes()), Problem::LongBatch { limit: 1024 });
        assert!(matches!(problem(b"[1"), Problem::Syntax(_)));
        assert!(matches!(problem(b"[\"\xff\"]"), Problem::Syntax(_)));
        assert!(!Batch::is_batch(b" {}") && !Batch::is_batch(b""));
    }
}

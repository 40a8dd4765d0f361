//! Request without its session name.

use stayput_wire::{Message, MessageError, TrimmedMessage};

/// Request from which the session name was removed.
#[derive(Debug)]
pub(crate) enum RequestEdit {
    /// One argument was removed; the message need not be parsed again.
    Cut(TrimmedMessage),
    /// More than one part was removed.
    Edited(String),
}

impl RequestEdit {
    /// Text of the message.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Cut(cut) => cut.text(),
            Self::Edited(text) => text,
        }
    }

    /// Returns the edited message. `whole` is the original.
    ///
    /// # Errors
    /// If the edited text is not a valid message, although the original was.
    pub(crate) fn message<'m>(
        &'m self,
        whole: &'m Message<'_>,
    ) -> Result<Message<'m>, MessageError> {
        match self {
            Self::Cut(cut) => Ok(cut.message(whole)),
            Self::Edited(text) => Message::parse(text.as_bytes()),
        }
    }
}

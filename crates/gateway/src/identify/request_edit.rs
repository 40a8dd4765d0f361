//! What is left of a request without what only named its session.

use stayput_wire::{Message, MessageError, TrimmedMessage};

/// A request without what only named its session.
#[derive(Debug)]
pub(crate) enum RequestEdit {
    /// One argument was taken out, and nothing has to be read again.
    Cut(TrimmedMessage),
    /// More than that.
    Edited(String),
}

impl RequestEdit {
    /// Its text.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Cut(cut) => cut.text(),
            Self::Edited(text) => text,
        }
    }

    /// What is left of `whole`.
    ///
    /// # Errors
    /// If it is no message, which it was before.
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

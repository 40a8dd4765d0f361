//! Request without its session name.

use stayput_wire::{Message, MessageError, TrimmedMessage, meta};

/// Request from which the session name was removed.
#[derive(Debug)]
pub(crate) enum RequestEdit {
    /// One argument was removed; the message need not be parsed again.
    Cut(TrimmedMessage),
    /// More than one part was removed.
    Edited(String),
}

impl RequestEdit {
    /// Removes the session name in `_meta`, if there is one. The name is a secret between the client and the gateway.
    pub(crate) fn without_meta_name(message: &Message<'_>) -> Option<Self> {
        message.params()?.find(&[meta::META, meta::SESSION])?;
        let mut edits = message.edit();
        edits.remove(&["params", meta::META, meta::SESSION]);
        edits.apply().ok().map(|text| Self::Edited(text.into_owned()))
    }

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

//! Edits of messages: a request without its session name, an answer with a handle.

use stayput_core::Handle;
use stayput_wire::{Edits, Message, MessageError, Raw, TrimmedMessage, json, meta};

use crate::text;

/// Request from which the session name was removed.
#[derive(Debug)]
pub enum RequestEdit {
    /// One argument was removed; the message need not be parsed again.
    Cut(TrimmedMessage),
    /// More than one part was removed.
    Edited(String),
}

impl RequestEdit {
    /// Removes the session name in `_meta`, if there is one. The name is a secret between the client and the
    /// session layer.
    #[must_use]
    pub fn without_meta_name(message: &Message<'_>) -> Option<Self> {
        message.params()?.find(&[meta::META, meta::SESSION])?;
        let mut edits = message.edit();
        edits.remove(&["params", meta::META, meta::SESSION]);
        edits.apply().ok().map(|text| Self::Edited(text.into_owned()))
    }

    /// Returns the text of the message.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Cut(cut) => cut.text(),
            Self::Edited(text) => text,
        }
    }

    /// Returns the text of the message.
    #[must_use]
    pub fn into_text(self) -> String {
        match self {
            Self::Cut(cut) => cut.into_text(),
            Self::Edited(text) => text,
        }
    }

    /// Returns the edited message. `whole` is the original.
    ///
    /// # Errors
    /// If the edited text is not a valid message, although the original was.
    pub fn message<'m>(&'m self, whole: &'m Message<'_>) -> Result<Message<'m>, MessageError> {
        match self {
            Self::Cut(cut) => Ok(cut.message(whole)),
            Self::Edited(text) => Message::parse(text.as_bytes()),
        }
    }
}

/// Adds a handle to an answer: as the last block of a tool's result, and in `_meta`. Returns `None` for an answer
/// that is no tool result; it stays unchanged, and its session ends soon.
#[must_use]
pub fn add_handle(answer: &str, handle: &Handle) -> Option<String> {
    let message = Message::parse(answer.as_bytes()).ok()?;
    let result = message.result()?;
    result.find(&["content"]).filter(|content| content.is_array())?;
    let mut edits = message.edit();
    set_handle(&mut edits, result, handle);
    edits.apply().ok().map(std::borrow::Cow::into_owned)
}

/// Adds a handle to a result: for the host in `_meta`, for the model as the last content block of a tool result.
pub fn set_handle(edits: &mut Edits<'_>, result: Raw<'_>, handle: &Handle) {
    edits.set_in(result, &[meta::META, meta::SESSION], &json::quote(handle.expose()));
    if let Some(content) = result.find(&["content"]).filter(|content| content.is_array()) {
        let sentence = json::quote(&text::minted(handle));
        let block = format!(r#"{{"type":"text","text":{sentence}}}"#);
        edits.replace(content, &longer(content, &block));
    }
}

/// Appends elements to a list in a JSON text.
pub(crate) fn append(text: &str, list: Raw<'_>, elements: &str) -> String {
    let at = list.range();
    let part = |range| text.get(range).unwrap_or_default();
    format!("{}{}{}", part(0..at.start), longer(list, elements), part(at.end..text.len()))
}

/// Returns a list with further elements at its end.
fn longer(list: Raw<'_>, elements: &str) -> String {
    let before = list.as_str().strip_suffix(']').unwrap_or_default();
    let comma = if list.elements().next().is_some() { "," } else { "" };
    format!("{before}{comma}{elements}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_is_added_as_the_last_block() {
        let handle = Handle::generate();
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"n":1.10,"content":[{"type":"text","text":"a"}],"_meta":{"x":1}}}"#;
        let added: serde_json::Value =
            serde_json::from_str(&add_handle(answer, &handle).unwrap()).unwrap();
        let blocks = added["result"]["content"].as_array().unwrap();
        assert_eq!((blocks.len(), &blocks[0]["text"]), (2, &serde_json::json!("a")));
        assert!(blocks[1]["text"].as_str().unwrap().contains(handle.expose()));
        assert_eq!(added["result"]["_meta"][meta::SESSION], handle.expose());
        assert_eq!(added["result"]["_meta"]["x"], 1);
        let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#;
        assert_eq!(add_handle(error, &handle), None);
        let other = r#"{"jsonrpc":"2.0","id":1,"result":{"messages":[]}}"#;
        assert_eq!(add_handle(other, &handle), None);
    }

    #[test]
    fn elements_are_appended_at_the_end() {
        let text = r#"{"a":[ ],"b":[1 ]}"#;
        let raw = Raw::parse(text).unwrap();
        assert_eq!(append(text, raw.find(&["a"]).unwrap(), "2"), r#"{"a":[ 2],"b":[1 ]}"#);
        assert_eq!(append(text, raw.find(&["b"]).unwrap(), "2,3"), r#"{"a":[ ],"b":[1 ,2,3]}"#);
    }
}

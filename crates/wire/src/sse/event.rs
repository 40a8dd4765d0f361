//! Server-sent event.

use std::time::Duration;

/// Server-sent event.
///
/// ```
/// use stayput_wire::sse::Event;
///
/// let event = Event::new(r#"{"jsonrpc":"2.0","method":"a"}"#).with_id("7")?;
/// assert_eq!(event.encode(), b"id: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"a\"}\n\n");
/// assert_eq!(event.name(), "message");
/// # Ok::<(), stayput_wire::sse::InvalidField>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    pub(super) name: Option<String>,
    pub(super) id: Option<String>,
    pub(super) retry: Option<Duration>,
    pub(super) data: Vec<u8>,
}

impl Event {
    /// Creates an event. All line breaks in `data` are decoded as LF.
    #[must_use]
    pub fn new(data: impl Into<Vec<u8>>) -> Self {
        let mut data = data.into();
        if data.contains(&b'\r') {
            data = with_line_feeds(&data);
        }
        Self { name: None, id: None, retry: None, data }
    }

    /// Sets the name.
    ///
    /// # Errors
    /// Returns an error if the name is empty or has a line break, which would start another field.
    pub fn with_name(self, name: &str) -> Result<Self, InvalidField> {
        if name.is_empty() || name.contains(['\r', '\n']) {
            return Err(InvalidField { field: "name" });
        }
        Ok(Self { name: Some(name.to_owned()), ..self })
    }

    /// Sets the id, at which a broken stream can be resumed.
    ///
    /// # Errors
    /// Returns an error if the id has a line break, or a NUL, with which it would be ignored.
    pub fn with_id(self, id: &str) -> Result<Self, InvalidField> {
        if id.contains(['\r', '\n', '\0']) {
            return Err(InvalidField { field: "id" });
        }
        Ok(Self { id: Some(id.to_owned()), ..self })
    }

    /// Sets the time to wait before a broken stream is resumed, in whole milliseconds.
    #[must_use]
    pub fn with_retry(self, pause: Duration) -> Self {
        let millis = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        Self { retry: Some(Duration::from_millis(millis)), ..self }
    }

    /// Returns the name, by default `message`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(super::MESSAGE)
    }

    /// Returns the event's own id. The decoder has the last id of the stream.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns the time to wait before the stream is resumed, if the event has one.
    #[must_use]
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Returns the data.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Returns the data.
    #[must_use]
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// Encodes the event.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.data.len() + 64);
        self.encode_into(&mut bytes);
        bytes
    }

    /// Appends the encoded event to `bytes`.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) {
        let mut field = |name: &str, value: &[u8]| {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.push(b'\n');
        };
        if let Some(name) = &self.name {
            field("event", name.as_bytes());
        }
        if let Some(id) = &self.id {
            field("id", id.as_bytes());
        }
        if let Some(pause) = self.retry {
            field("retry", pause.as_millis().to_string().as_bytes());
        }
        self.data.split(|byte| *byte == b'\n').for_each(|line| field("data", line));
        bytes.push(b'\n');
    }
}

fn with_line_feeds(data: &[u8]) -> Vec<u8> {
    let mut after_return = false;
    let mut clean = Vec::with_capacity(data.len());
    for byte in data {
        if !(after_return && *byte == b'\n') {
            clean.push(if *byte == b'\r' { b'\n' } else { *byte });
        }
        after_return = *byte == b'\r';
    }
    clean
}

impl std::fmt::Debug for Event {
    /// Shows the size only, because content may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({}, id {:?}, {} bytes)", self.name(), self.id, self.data.len())
    }
}

/// Name or id that an event cannot contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {field} of an event must be one line of text")]
pub struct InvalidField {
    field: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_are_written() {
        let event = Event::new("a\r\nb\rc\n")
            .with_name("endpoint")
            .and_then(|event| event.with_id(" x"))
            .unwrap()
            .with_retry(Duration::from_micros(1_500_900));
        let expected =
            "event: endpoint\nid:  x\nretry: 1500\ndata: a\ndata: b\ndata: c\ndata: \n\n";
        assert_eq!(String::from_utf8(event.encode()).unwrap(), expected);
    }

    /// SEP-1699: a stream starts with an event that has an id and empty data.
    #[test]
    fn empty_event_has_a_data_line() {
        assert_eq!(Event::new("").with_id("0").unwrap().encode(), b"id: 0\ndata: \n\n");
    }

    #[test]
    fn field_with_line_break_is_refused() {
        assert!(Event::new("").with_name("a\ndata: x").is_err());
        assert!(Event::new("").with_name("").is_err());
        assert!(Event::new("").with_id("a\rb").is_err());
        let error = Event::new("").with_id("a\0").unwrap_err();
        assert_eq!(error.to_string(), "the id of an event must be one line of text");
    }

    /// Invariant 8.
    #[test]
    fn debug_shows_no_data() {
        assert_eq!(format!("{:?}", Event::new("sp_secret")), "Event(message, id None, 9 bytes)");
    }
}

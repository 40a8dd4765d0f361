//! Decoder of an event stream.

use std::{borrow::Cow, time::Duration};

use super::Event;

/// Decodes an event stream that arrives in chunks of any size.
///
/// Lines end with CR, LF or CRLF, also if a chunk ends between CR and LF. An event over the limit is reported once
/// and dropped, and the next one is read. An event that is incomplete when the stream ends is dropped.
///
/// ```
/// use stayput_wire::sse::Decoder;
///
/// let mut events = Decoder::new(1024);
/// let mut seen = Vec::new();
/// for mut chunk in [&b": hello\n\nid: 7\nda"[..], b"ta: one\r", b"\ndata: two\r\n\r\n"] {
///     while let Some(event) = events.next_event(&mut chunk) {
///         seen.push(event?);
///     }
/// }
/// assert_eq!(seen[0].data(), b"one\ntwo");
/// assert_eq!(events.last_id(), Some("7"));
/// # Ok::<(), stayput_wire::sse::EventTooLarge>(())
/// ```
#[derive(Clone)]
pub struct Decoder {
    limit: usize,
    state: LineState,
    // Start of an incomplete line.
    partial_line: Vec<u8>,
    event: PartialEvent,
    last_id: Option<String>,
    retry: Option<Duration>,
    // Set for the first line, which can start with a byte order mark.
    first: bool,
    // Set after CR: a following LF belongs to the same line break.
    after_return: bool,
}

/// Treatment of the current line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineState {
    Line,
    Comment,
    /// The event is too large and skipped up to an empty line. `empty` is set while the current line is empty.
    Skip {
        empty: bool,
    },
}

/// Fields of an incomplete event.
#[derive(Clone, Default)]
struct PartialEvent {
    name: Option<String>,
    id: Option<String>,
    retry: Option<Duration>,
    data: Option<Vec<u8>>,
    size: usize,
}

impl Decoder {
    /// Creates a decoder for events of at most `limit` bytes, without line breaks and comments.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            state: LineState::Line,
            partial_line: Vec::new(),
            event: PartialEvent::default(),
            last_id: None,
            retry: None,
            first: true,
            after_return: false,
        }
    }

    /// Takes the next event from `chunk`. `None` means that the chunk is used up.
    ///
    /// After an error, the next call continues with the next event.
    pub fn next_event(&mut self, chunk: &mut &[u8]) -> Option<Result<Event, EventTooLarge>> {
        loop {
            if let (true, Some((first, rest))) = (self.after_return, chunk.split_first()) {
                self.after_return = false;
                if *first == b'\n' {
                    *chunk = rest;
                }
            }
            let Some(end) = chunk.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
                return self.buffer(std::mem::take(chunk)).map(Err);
            };
            let part = &chunk[..end];
            self.after_return = chunk[end] == b'\r';
            *chunk = &chunk[end + 1..];
            if let Some(event) = self.end_line(part) {
                return Some(event);
            }
        }
    }

    /// Returns the last id of the stream, with or without an event. The stream can be resumed there.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Returns the last `retry` of the stream, with or without an event.
    #[must_use]
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Buffers the start of a line, unless it is too large already.
    fn buffer(&mut self, part: &[u8]) -> Option<EventTooLarge> {
        match self.state {
            LineState::Skip { empty } => {
                self.state = LineState::Skip { empty: empty && part.is_empty() };
            }
            LineState::Comment => {}
            LineState::Line if self.is_comment(part) => self.state = LineState::Comment,
            LineState::Line => {
                self.partial_line.extend_from_slice(part);
                if self.event.size + self.partial_line.len() > self.limit {
                    return Some(self.drop_event(false));
                }
            }
        }
        None
    }

    /// Handles the line that ends with `part`. Returns an event if the line completes one.
    fn end_line(&mut self, part: &[u8]) -> Option<Result<Event, EventTooLarge>> {
        let first = std::mem::take(&mut self.first);
        match std::mem::replace(&mut self.state, LineState::Line) {
            LineState::Skip { empty: true } if part.is_empty() => return None,
            LineState::Skip { .. } => {
                self.state = LineState::Skip { empty: true };
                return None;
            }
            LineState::Comment => return None,
            LineState::Line if self.is_comment(part) => return None,
            LineState::Line => {}
        }
        let line = if self.partial_line.is_empty() {
            Cow::Borrowed(part)
        } else {
            self.partial_line.extend_from_slice(part);
            Cow::Owned(std::mem::take(&mut self.partial_line))
        };
        self.event.size += line.len();
        if self.event.size > self.limit {
            return Some(Err(self.drop_event(true)));
        }
        let mut line = line.as_ref();
        if first {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() { self.dispatch().map(Ok) } else { self.field(line) }
    }

    /// Comments are not buffered, so a stream may contain any number of them.
    fn is_comment(&self, part: &[u8]) -> bool {
        self.partial_line.is_empty() && part.first() == Some(&b':')
    }

    fn field(&mut self, line: &[u8]) -> Option<Result<Event, EventTooLarge>> {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            b"data" => match &mut self.event.data {
                None => self.event.data = Some(value.to_vec()),
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
            },
            b"event" => self.event.name = Some(text()).filter(|name| !name.is_empty()),
            b"id" if !value.contains(&0) => self.event.id = Some(text()),
            // `parse` would also accept a sign.
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                if let Ok(millis) = text().parse() {
                    self.event.retry = Some(Duration::from_millis(millis));
                    self.retry = self.event.retry;
                }
            }
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<Event> {
        let PartialEvent { name, id, retry, data, .. } = std::mem::take(&mut self.event);
        if id.is_some() {
            self.last_id.clone_from(&id);
        }
        Some(Event { name, id, retry, data: data? })
    }

    fn drop_event(&mut self, empty: bool) -> EventTooLarge {
        self.partial_line = Vec::new();
        self.event = PartialEvent::default();
        self.state = LineState::Skip { empty };
        EventTooLarge { limit: self.limit }
    }
}

impl std::fmt::Debug for Decoder {
    /// Shows the size only, because content may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let partial_line = self.partial_line.len() + self.event.size;
        write!(f, "Decoder(last id {:?}, {partial_line} of {} bytes)", self.last_id, self.limit)
    }
}

/// Event over the limit. It was dropped, and the next one is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream has more than {limit} bytes and was dropped")]
pub struct EventTooLarge {
    limit: usize,
}

impl EventTooLarge {
    /// Returns the limit in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = Result<Event, EventTooLarge>;

    fn read(decoder: &mut Decoder, chunks: &[&[u8]]) -> Vec<Read> {
        let mut events = Vec::new();
        for mut chunk in chunks.iter().copied() {
            while let Some(event) = decoder.next_event(&mut chunk) {
                events.push(event);
            }
        }
        events
    }

    /// Decodes `bytes` at once, byte by byte, and split in two at every position: the result is the same.
    fn decode(limit: usize, bytes: &[u8]) -> (Vec<Read>, Decoder) {
        let mut decoder = Decoder::new(limit);
        let events = read(&mut decoder, &[bytes]);
        let single: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(read(&mut Decoder::new(limit), &single), events);
        for place in 0..bytes.len() {
            let (one, two) = bytes.split_at(place);
            assert_eq!(read(&mut Decoder::new(limit), &[one, b"", two]), events, "cut at {place}");
        }
        (events, decoder)
    }

    fn data(events: &[Read]) -> Vec<&str> {
        events
            .iter()
            .map(|event| std::str::from_utf8(event.as_ref().unwrap().data()).unwrap())
            .collect()
    }

    #[test]
    fn every_kind_of_line_break_ends_a_line() {
        let (events, _) = decode(99, b"data:a\n\ndata:b\r\rdata:c\r\n\r\ndata:d\r\n\ndata:e\n\r\n");
        assert_eq!(data(&events), ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn fields_follow_the_specification() {
        let stream =
            b"\xef\xbb\xbf: comment\nevent: x\nevent: endpoint\ndata:  one\ndata\ndata:two\n\
            data : no\nid: 1\nretry: 25\nunknown: x\n\n";
        let (events, _) = decode(99, stream);
        let event = events[0].as_ref().unwrap();
        assert_eq!(data(&events), [" one\n\ntwo"]);
        assert_eq!((event.name(), event.id()), ("endpoint", Some("1")));
        assert_eq!(event.retry(), Some(Duration::from_millis(25)));
    }

    #[test]
    fn event_needs_data_but_id_and_retry_do_not() {
        let (events, decoder) = decode(99, b"event: x\nid: 7\n\nretry: 10\n\n\ndata:\n\nid: 8\n");
        assert_eq!(data(&events), [""]);
        assert_eq!(events[0].as_ref().unwrap().name(), "message");
        assert_eq!(
            (decoder.last_id(), decoder.retry()),
            (Some("7"), Some(Duration::from_millis(10)))
        );
    }

    #[test]
    fn invalid_id_and_retry_are_ignored() {
        let stream = b"id: 1\nid: 2\0\nretry: -5\nretry: +5\nretry: 5s\nretry:\nretry: 99999999999999999999\n\
            event:\ndata: x\n\nid\n\n";
        let (events, decoder) = decode(99, stream);
        let event = events[0].as_ref().unwrap();
        assert_eq!((event.id(), event.retry(), event.name()), (Some("1"), None, "message"));
        assert_eq!(decoder.last_id(), Some(""), "an empty id takes the last one back");
    }

    #[test]
    fn byte_order_mark_is_skipped_only_at_the_start() {
        assert_eq!(data(&decode(99, b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n").0), ["a"]);
        assert_eq!(data(&decode(99, b"\xef\xbb\xbf\ndata: a\n\n").0), ["a"]);
        assert!(decode(99, b":\n\xef\xbb\xbfdata: a\n\n").0.is_empty());
    }

    #[test]
    fn large_event_is_reported_once_and_skipped() {
        let large = EventTooLarge { limit: 10 };
        let (events, _) = decode(10, b"data: 1234\n\ndata: 12345\ndata: x\n\ndata: a\n\n");
        assert_eq!(events[0].as_ref().unwrap().data(), b"1234");
        assert_eq!(events[1], Err(large));
        assert_eq!(events[2].as_ref().unwrap().data(), b"a");
        assert_eq!(events.len(), 3);
        // Several short lines can exceed the limit, too.
        let (events, _) = decode(10, b"data: a\nid: 1\n\r\ndata: b\r\r");
        assert_eq!(
            (events[0].clone(), events[1].as_ref().unwrap().data()),
            (Err(large), &b"b"[..])
        );
        assert_eq!(decode(10, b"data: 12345").0, [Err(large)]);
        // A line over the limit is dropped before it ends.
        assert_eq!(decode(10, b"data: 1\ndata").0, [Err(large)]);
    }

    #[test]
    fn comments_do_not_count_toward_the_limit() {
        let stream = [&b":\n"[..], &b": ping\n".repeat(100), b"data: a\n\n"].concat();
        assert_eq!(data(&decode(10, &stream).0), ["a"]);
        let mut decoder = Decoder::new(10);
        assert!(read(&mut decoder, &[b"\n:", &[b'x'; 1000], b"\ndata: a\n\n"])[0].is_ok());
    }

    #[test]
    fn data_may_be_any_bytes() {
        let (events, _) = decode(99, b"data: \xff\0\nid: \xff\n\n");
        let event = events[0].as_ref().unwrap();
        assert_eq!((event.data(), event.id()), (&b"\xff\0"[..], Some("\u{fffd}")));
    }
}

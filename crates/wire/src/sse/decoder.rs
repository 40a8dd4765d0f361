//! Events out of bytes, however they are cut.

use std::{borrow::Cow, time::Duration};

use super::Event;

/// Reads a stream of events that comes in chunks of any size.
///
/// Lines end with a carriage return, a line feed or both, also where a chunk ends between the two. An
/// event over the limit is told once, its bytes are dropped as they come, and reading goes on with
/// the next one. An event that is not complete when the stream ends was not sent.
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
    reading: Reading,
    // What came of a line that is not complete.
    begun: Vec<u8>,
    event: Begun,
    last_id: Option<String>,
    retry: Option<Duration>,
    // Only the first line can begin with a byte order mark.
    first: bool,
    // A line feed that follows is the other half of the line break.
    after_return: bool,
}

/// What is done with the line that is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Line,
    Comment,
    /// The event was too large and is passed over, up to an empty line: is this one empty so far?
    Nothing {
        empty: bool,
    },
}

/// What came of an event that is not complete.
#[derive(Clone, Default)]
struct Begun {
    name: Option<String>,
    id: Option<String>,
    retry: Option<Duration>,
    data: Option<Vec<u8>>,
    size: usize,
}

impl Decoder {
    /// Events of at most `limit` bytes, counting their lines without line breaks and comments.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            reading: Reading::Line,
            begun: Vec::new(),
            event: Begun::default(),
            last_id: None,
            retry: None,
            first: true,
            after_return: false,
        }
    }

    /// Takes the next event from `chunk`. `None` means that the chunk is used up.
    ///
    /// An error is one event, too: the next call goes on behind it.
    pub fn next_event(&mut self, chunk: &mut &[u8]) -> Option<Result<Event, EventTooLarge>> {
        loop {
            if let (true, Some((first, rest))) = (self.after_return, chunk.split_first()) {
                self.after_return = false;
                if *first == b'\n' {
                    *chunk = rest;
                }
            }
            let Some(end) = chunk.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
                return self.begin(std::mem::take(chunk)).map(Err);
            };
            let part = &chunk[..end];
            self.after_return = chunk[end] == b'\r';
            *chunk = &chunk[end + 1..];
            if let Some(event) = self.complete(part) {
                return Some(event);
            }
        }
    }

    /// The last id that the stream told, with or without an event: where to take it up again.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// The last pause that the stream told, with or without an event.
    #[must_use]
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Whether an event was begun: if the stream ends now, it was cut off.
    #[must_use]
    pub fn is_midway(&self) -> bool {
        !self.begun.is_empty() || self.event.size > 0 || self.reading != Reading::Line
    }

    /// Keeps the beginning of a line, unless it is already too much.
    fn begin(&mut self, part: &[u8]) -> Option<EventTooLarge> {
        match self.reading {
            Reading::Nothing { empty } => {
                self.reading = Reading::Nothing { empty: empty && part.is_empty() };
            }
            Reading::Comment => {}
            Reading::Line if self.is_comment(part) => self.reading = Reading::Comment,
            Reading::Line => {
                self.begun.extend_from_slice(part);
                if self.event.size + self.begun.len() > self.limit {
                    return Some(self.give_up(false));
                }
            }
        }
        None
    }

    /// Reads a line that ends with `part`, which can complete an event.
    fn complete(&mut self, part: &[u8]) -> Option<Result<Event, EventTooLarge>> {
        let first = std::mem::take(&mut self.first);
        match std::mem::replace(&mut self.reading, Reading::Line) {
            Reading::Nothing { empty: true } if part.is_empty() => return None,
            Reading::Nothing { .. } => {
                self.reading = Reading::Nothing { empty: true };
                return None;
            }
            Reading::Comment => return None,
            Reading::Line if self.is_comment(part) => return None,
            Reading::Line => {}
        }
        let line = if self.begun.is_empty() {
            Cow::Borrowed(part)
        } else {
            self.begun.extend_from_slice(part);
            Cow::Owned(std::mem::take(&mut self.begun))
        };
        self.event.size += line.len();
        if self.event.size > self.limit {
            return Some(Err(self.give_up(true)));
        }
        let mut line = line.as_ref();
        if first {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() { self.dispatch().map(Ok) } else { self.field(line) }
    }

    /// Comments are never kept, so that a stream can live on nothing else.
    fn is_comment(&self, part: &[u8]) -> bool {
        self.begun.is_empty() && part.first() == Some(&b':')
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
            // `parse` alone would take a sign.
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
        let Begun { name, id, retry, data, .. } = std::mem::take(&mut self.event);
        if id.is_some() {
            self.last_id.clone_from(&id);
        }
        Some(Event { name, id, retry, data: data? })
    }

    fn give_up(&mut self, empty: bool) -> EventTooLarge {
        self.begun = Vec::new();
        self.event = Begun::default();
        self.reading = Reading::Nothing { empty };
        EventTooLarge { limit: self.limit }
    }
}

impl std::fmt::Debug for Decoder {
    /// Shows how much was begun, not what: that can be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let begun = self.begun.len() + self.event.size;
        write!(f, "Decoder(last id {:?}, {begun} of {} bytes)", self.last_id, self.limit)
    }
}

/// An event was larger than allowed. It was dropped, and reading goes on with the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream has more than {limit} bytes and was dropped")]
pub struct EventTooLarge {
    limit: usize,
}

impl EventTooLarge {
    /// How many bytes an event may have.
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

    /// Reads `bytes` whole, byte by byte, and cut in two at every place: always the same.
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
    fn every_line_break_ends_a_line() {
        let (events, _) = decode(99, b"data:a\n\ndata:b\r\rdata:c\r\n\r\ndata:d\r\n\ndata:e\n\r\n");
        assert_eq!(data(&events), ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn fields_are_read_as_the_specification_says() {
        let stream =
            b"\xef\xbb\xbf: comment\nevent: x\nevent: endpoint\ndata:  one\ndata\ndata:two\n\
            data : no\nid: 1\nretry: 25\nunknown: x\n\n";
        let (events, decoder) = decode(99, stream);
        let event = events[0].as_ref().unwrap();
        assert_eq!(data(&events), [" one\n\ntwo"]);
        assert_eq!((event.name(), event.id()), ("endpoint", Some("1")));
        assert_eq!(event.retry(), Some(Duration::from_millis(25)));
        assert!(!decoder.is_midway());
    }

    #[test]
    fn an_event_needs_data_but_an_id_or_a_pause_counts_without() {
        let (events, decoder) = decode(99, b"event: x\nid: 7\n\nretry: 10\n\n\ndata:\n\nid: 8\n");
        assert_eq!(data(&events), [""]);
        assert_eq!(events[0].as_ref().unwrap().name(), "message");
        assert_eq!(
            (decoder.last_id(), decoder.retry()),
            (Some("7"), Some(Duration::from_millis(10)))
        );
        assert!(decoder.is_midway(), "the id 8 was cut off and does not count");
    }

    #[test]
    fn bad_ids_and_pauses_are_ignored() {
        let stream = b"id: 1\nid: 2\0\nretry: -5\nretry: +5\nretry: 5s\nretry:\nretry: 99999999999999999999\n\
            event:\ndata: x\n\nid\n\n";
        let (events, decoder) = decode(99, stream);
        let event = events[0].as_ref().unwrap();
        assert_eq!((event.id(), event.retry(), event.name()), (Some("1"), None, "message"));
        assert_eq!(decoder.last_id(), Some(""), "an empty id takes the last one back");
    }

    #[test]
    fn a_byte_order_mark_counts_only_at_the_beginning() {
        assert_eq!(data(&decode(99, b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n").0), ["a"]);
        assert_eq!(data(&decode(99, b"\xef\xbb\xbf\ndata: a\n\n").0), ["a"]);
        assert!(decode(99, b":\n\xef\xbb\xbfdata: a\n\n").0.is_empty());
    }

    #[test]
    fn an_event_that_is_too_large_is_told_once_and_passed_over() {
        let large = EventTooLarge { limit: 10 };
        let (events, _) = decode(10, b"data: 1234\n\ndata: 12345\ndata: x\n\ndata: a\n\n");
        assert_eq!(events[0].as_ref().unwrap().data(), b"1234");
        assert_eq!(events[1], Err(large));
        assert_eq!(events[2].as_ref().unwrap().data(), b"a");
        assert_eq!(events.len(), 3);
        // Many small lines are as large as one large one.
        let (events, _) = decode(10, b"data: a\nid: 1\n\r\ndata: b\r\r");
        assert_eq!(
            (events[0].clone(), events[1].as_ref().unwrap().data()),
            (Err(large), &b"b"[..])
        );
        let (events, decoder) = decode(10, b"data: 12345");
        assert_eq!((events, decoder.is_midway()), (vec![Err(large)], true));
        // What is too much already is not kept until its line ends.
        assert_eq!(decode(10, b"data: 1\ndata").0, [Err(large)]);
    }

    #[test]
    fn a_stream_can_live_on_comments_for_ever() {
        let stream = [&b":\n"[..], &b": ping\n".repeat(100), b"data: a\n\n"].concat();
        assert_eq!(data(&decode(10, &stream).0), ["a"]);
        let mut decoder = Decoder::new(10);
        assert!(read(&mut decoder, &[b"\n:", &[b'x'; 1000], b"\ndata: a\n\n"])[0].is_ok());
    }

    #[test]
    fn data_are_bytes() {
        let (events, _) = decode(99, b"data: \xff\0\nid: \xff\n\n");
        let event = events[0].as_ref().unwrap();
        assert_eq!((event.data(), event.id()), (&b"\xff\0"[..], Some("\u{fffd}")));
    }
}

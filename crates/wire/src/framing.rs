//! Line framing, as used over stdio.

use std::borrow::Cow;

/// Splits a byte stream into lines.
///
/// Chunks may have any size. Empty lines are skipped, and a carriage return at the end of a line is dropped. A line
/// inside one chunk is borrowed; only a line that spans chunks is copied. A line over the limit is reported once and
/// dropped, and the next line is read.
///
/// ```
/// use stayput_wire::LineSplitter;
///
/// let mut lines = LineSplitter::new(64);
/// let mut seen = Vec::new();
/// for mut chunk in [&b"{\"a\":1}\n{\"b\""[..], b":2}\r\n\n"] {
///     while let Some(line) = lines.next_line(&mut chunk) {
///         seen.push(String::from_utf8(line?.into_owned()).unwrap());
///     }
/// }
/// assert_eq!(seen, [r#"{"a":1}"#, r#"{"b":2}"#]);
/// assert_eq!(lines.finish(), None);
/// # Ok::<(), stayput_wire::LineTooLong>(())
/// ```
#[derive(Debug, Clone)]
pub struct LineSplitter {
    limit: usize,
    partial: Vec<u8>,
    // Set while the rest of a long line is skipped.
    skipping: bool,
}

impl LineSplitter {
    /// Creates a splitter for lines of at most `limit` bytes without line break.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, partial: Vec::new(), skipping: false }
    }

    /// Takes the next line from `chunk`. `None` means that the chunk is used up.
    ///
    /// After an error, the next call continues with the next line.
    pub fn next_line<'c>(
        &mut self,
        chunk: &mut &'c [u8],
    ) -> Option<Result<Cow<'c, [u8]>, LineTooLong>> {
        loop {
            let Some(end) = memchr::memchr(b'\n', chunk) else {
                return self.buffer(std::mem::take(chunk));
            };
            let part = &chunk[..end];
            *chunk = &chunk[end + 1..];
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            let line = if self.partial.is_empty() {
                Cow::Borrowed(without_return(part))
            } else {
                self.partial.extend_from_slice(part);
                let mut line = std::mem::take(&mut self.partial);
                line.truncate(without_return(&line).len());
                Cow::Owned(line)
            };
            if line.len() > self.limit {
                return Some(Err(LineTooLong { limit: self.limit }));
            }
            if !line.trim_ascii().is_empty() {
                return Some(Ok(line));
            }
        }
    }

    /// Returns the unterminated last line when the stream has ended.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        self.skipping = false;
        let mut line = std::mem::take(&mut self.partial);
        line.truncate(without_return(&line).len());
        // A trailing carriage return may have exceeded the limit by one byte.
        Some(line).filter(|line| !line.trim_ascii().is_empty() && line.len() <= self.limit)
    }

    /// Buffers the start of a line, unless it is too long already.
    fn buffer<T>(&mut self, part: &[u8]) -> Option<Result<T, LineTooLong>> {
        if self.skipping {
            return None;
        }
        self.partial.extend_from_slice(part);
        // A carriage return before the line break does not count, but the line break may still be missing.
        if without_return(&self.partial).len() <= self.limit {
            return None;
        }
        self.partial = Vec::new();
        self.skipping = true;
        Some(Err(LineTooLong { limit: self.limit }))
    }
}

/// Turns a JSON text into one line, and terminates it.
///
/// Line breaks between JSON tokens become spaces; strings cannot contain any. Over stdio a line break would split the
/// message.
///
/// ```
/// let mut line = b"{\"a\":\r\n1}".to_vec();
/// stayput_wire::end_line(&mut line);
/// assert_eq!(line, b"{\"a\":  1}\n");
/// ```
pub fn end_line(line: &mut Vec<u8>) {
    let mut from = 0;
    while let Some(at) = memchr::memchr2(b'\n', b'\r', &line[from..]) {
        line[from + at] = b' ';
        from += at + 1;
    }
    line.push(b'\n');
}

/// Removes a carriage return at the end of a line.
fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Line over the limit. It was dropped, and the next line is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line has more than {limit} bytes and was dropped")]
pub struct LineTooLong {
    limit: usize,
}

impl LineTooLong {
    /// Returns the limit in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Line = Result<Vec<u8>, LineTooLong>;

    fn split(limit: usize, chunks: &[&[u8]]) -> (Vec<Line>, Option<Vec<u8>>) {
        let mut splitter = LineSplitter::new(limit);
        let mut lines = Vec::new();
        for mut chunk in chunks.iter().copied() {
            while let Some(line) = splitter.next_line(&mut chunk) {
                lines.push(line.map(Cow::into_owned));
            }
        }
        (lines, splitter.finish())
    }

    #[test]
    fn lines_are_joined_across_chunks() {
        let expected = (vec![Ok(b"one".to_vec()), Ok(b"two".to_vec())], Some(b"three".to_vec()));
        assert_eq!(split(5, &[b"one\n\r\n  \ntwo\r\nthree"]), expected);
        assert_eq!(split(5, &[b"on", b"e\n", b"", b"\n", b"two\r", b"\nth", b"ree"]), expected);
    }

    #[test]
    fn line_inside_a_chunk_is_not_copied() {
        let mut splitter = LineSplitter::new(10);
        let mut chunk = &b"one\ntw"[..];
        assert!(matches!(splitter.next_line(&mut chunk), Some(Ok(Cow::Borrowed(b"one")))));
        assert!(splitter.next_line(&mut chunk).is_none() && chunk.is_empty());
        let mut chunk = &b"o\n"[..];
        assert!(matches!(splitter.next_line(&mut chunk), Some(Ok(Cow::Owned(_)))));
    }

    /// 50 MB without a line break cause one error, and use no more memory than the limit.
    #[test]
    fn long_line_is_reported_once_and_skipped() {
        let mut splitter = LineSplitter::new(1 << 20);
        let (chunk, mut errors) = (vec![b'x'; 1 << 16], 0);
        for _ in 0..800 {
            let mut rest = chunk.as_slice();
            while let Some(line) = splitter.next_line(&mut rest) {
                assert_eq!(line, Err(LineTooLong { limit: 1 << 20 }));
                errors += 1;
            }
            assert!(splitter.partial.capacity() <= 4 << 20);
        }
        assert_eq!(errors, 1);
        let mut rest = &b"xxx\nnext\n"[..];
        assert_eq!(splitter.next_line(&mut rest), Some(Ok(Cow::Borrowed(&b"next"[..]))));
    }

    #[test]
    fn limit_is_exact_and_excludes_the_line_break() {
        let long = LineTooLong { limit: 3 };
        assert_eq!(split(3, &[b"abc\r\nabcd\nabc"]).0, [Ok(b"abc".to_vec()), Err(long)]);
        assert_eq!(split(3, &[b"abc\r", b"\nabcd", b"\nabc"]).0, [Ok(b"abc".to_vec()), Err(long)]);
        assert_eq!(split(3, &[b"abc\rd\n"]).0, [Err(long)]);
        assert_eq!(split(3, &[b"abc\r", b"d\n"]).0, [Err(long)]);
        assert_eq!(split(3, &[b"abc\r"]).1, Some(b"abc".to_vec()));
        assert_eq!(split(3, &[b"abcd"]), (vec![Err(long)], None));
    }
}

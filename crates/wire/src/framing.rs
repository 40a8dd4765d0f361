//! Messages as lines, as stdio carries them.

use std::borrow::Cow;

/// Cuts a stream of bytes into lines.
///
/// The stream comes in chunks of any size. Empty lines are passed over and a carriage return at the
/// end of a line is dropped. A line that lies in one chunk is borrowed from it, only one that spans
/// several is put together. A line over the limit is told once, its bytes are dropped as they come,
/// and reading goes on with the next line.
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
    begun: Vec<u8>,
    // The rest of a line that was too long is to be passed over.
    skipping: bool,
}

impl LineSplitter {
    /// Lines of at most `limit` bytes, the line break not counted.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, begun: Vec::new(), skipping: false }
    }

    /// Takes the next line from `chunk`. `None` means that the chunk is used up.
    ///
    /// An error is one line, too: the next call goes on behind it.
    pub fn next_line<'c>(
        &mut self,
        chunk: &mut &'c [u8],
    ) -> Option<Result<Cow<'c, [u8]>, LineTooLong>> {
        loop {
            let Some(end) = memchr::memchr(b'\n', chunk) else {
                return self.begin(std::mem::take(chunk));
            };
            let part = &chunk[..end];
            *chunk = &chunk[end + 1..];
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            let line = if self.begun.is_empty() {
                Cow::Borrowed(trimmed(part))
            } else {
                self.begun.extend_from_slice(part);
                let mut line = std::mem::take(&mut self.begun);
                line.truncate(trimmed(&line).len());
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

    /// What came behind the last line break, once nothing comes any more: a line that was cut off, or
    /// the last line of somebody who does not end it.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        self.skipping = false;
        let mut line = std::mem::take(&mut self.begun);
        line.truncate(trimmed(&line).len());
        // A carriage return may have been granted one byte too many.
        Some(line).filter(|line| !line.trim_ascii().is_empty() && line.len() <= self.limit)
    }

    /// Keeps the beginning of a line, unless it is already too long.
    fn begin<T>(&mut self, part: &[u8]) -> Option<Result<T, LineTooLong>> {
        if self.skipping {
            return None;
        }
        self.begun.extend_from_slice(part);
        // A carriage return does not count if the line ends behind it, which is not known yet.
        if trimmed(&self.begun).len() <= self.limit {
            return None;
        }
        self.begun = Vec::new();
        self.skipping = true;
        Some(Err(LineTooLong { limit: self.limit }))
    }
}

/// Makes one line of a JSON text, and ends it.
///
/// A line break between the values of a JSON text is as good as a space; inside a string it cannot
/// stand. On stdio it would cut the message in two.
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

/// A line without the carriage return that ends it.
fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A line was longer than allowed. It was dropped, and reading goes on with the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line has more than {limit} bytes and was dropped")]
pub struct LineTooLong {
    limit: usize,
}

impl LineTooLong {
    /// How many bytes a line may have.
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
    fn lines_come_whole_however_they_are_cut() {
        let expected = (vec![Ok(b"one".to_vec()), Ok(b"two".to_vec())], Some(b"three".to_vec()));
        assert_eq!(split(5, &[b"one\n\r\n  \ntwo\r\nthree"]), expected);
        assert_eq!(split(5, &[b"on", b"e\n", b"", b"\n", b"two\r", b"\nth", b"ree"]), expected);
    }

    #[test]
    fn a_line_inside_a_chunk_is_not_copied() {
        let mut splitter = LineSplitter::new(10);
        let mut chunk = &b"one\ntw"[..];
        assert!(matches!(splitter.next_line(&mut chunk), Some(Ok(Cow::Borrowed(b"one")))));
        assert!(splitter.next_line(&mut chunk).is_none() && chunk.is_empty());
        let mut chunk = &b"o\n"[..];
        assert!(matches!(splitter.next_line(&mut chunk), Some(Ok(Cow::Owned(_)))));
    }

    /// 50 MB without a line break cost the limit, one error, and nothing that follows.
    #[test]
    fn a_line_that_is_too_long_is_told_once_and_passed_over() {
        let mut splitter = LineSplitter::new(1 << 20);
        let (chunk, mut errors) = (vec![b'x'; 1 << 16], 0);
        for _ in 0..800 {
            let mut rest = chunk.as_slice();
            while let Some(line) = splitter.next_line(&mut rest) {
                assert_eq!(line, Err(LineTooLong { limit: 1 << 20 }));
                errors += 1;
            }
            assert!(splitter.begun.capacity() <= 4 << 20);
        }
        assert_eq!(errors, 1);
        let mut rest = &b"xxx\nnext\n"[..];
        assert_eq!(splitter.next_line(&mut rest), Some(Ok(Cow::Borrowed(&b"next"[..]))));
    }

    #[test]
    fn the_limit_is_exact_and_does_not_count_the_line_break() {
        let long = LineTooLong { limit: 3 };
        assert_eq!(split(3, &[b"abc\r\nabcd\nabc"]).0, [Ok(b"abc".to_vec()), Err(long)]);
        assert_eq!(split(3, &[b"abc\r", b"\nabcd", b"\nabc"]).0, [Ok(b"abc".to_vec()), Err(long)]);
        assert_eq!(split(3, &[b"abc\rd\n"]).0, [Err(long)]);
        assert_eq!(split(3, &[b"abc\r", b"d\n"]).0, [Err(long)]);
        assert_eq!(split(3, &[b"abc\r"]).1, Some(b"abc".to_vec()));
        assert_eq!(split(3, &[b"abcd"]), (vec![Err(long)], None));
    }
}

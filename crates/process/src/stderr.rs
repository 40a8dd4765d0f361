//! End of a child's stderr.

use std::{collections::VecDeque, fmt};

use stayput_sync::Mutex;

/// Last lines that a child wrote to stderr, for the operator who has to find out why it died.
///
/// Holds at most [`StderrTail::LIMIT`] bytes, and of each line at most [`StderrTail::LINE_LIMIT`]. Allocates
/// nothing for a child that writes nothing.
///
/// ```
/// use stayput_process::StderrTail;
///
/// let tail = StderrTail::new();
/// tail.push(b"\x1b[31mno such \xff file\x1b[0m\r\n");
/// assert_eq!(tail.text(), "no such \u{fffd} file\n");
/// ```
#[derive(Default)]
pub struct StderrTail {
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    bytes: VecDeque<u8>,
    /// Length of the last line, which has no line break yet.
    open: usize,
}

impl StderrTail {
    /// Number of bytes that are kept. The oldest lines are dropped first.
    pub const LIMIT: usize = 64 * 1024;

    /// Number of bytes that are kept of one line. The rest of the line is dropped.
    pub const LINE_LIMIT: usize = 4 * 1024;

    /// Creates an empty tail, which allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that were read. A line may come in pieces.
    pub fn push(&self, bytes: &[u8]) {
        let mut lines = self.lines.lock();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            lines.push(piece);
        }
    }

    /// Returns the kept lines for display: invalid UTF-8 is replaced; colours and control characters except
    /// line breaks and tabs are removed.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.lines.lock().bytes.iter().copied().collect();
        printable(&String::from_utf8_lossy(&bytes))
    }

    /// Returns whether the child wrote nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.lock().bytes.is_empty()
    }
}

impl Lines {
    /// Adds a piece of a line, with or without a line break at its end.
    fn push(&mut self, piece: &[u8]) {
        let (text, child_pipes) = match piece {
            [text @ .., b'\n'] => (text, true),
            text => (text, false),
        };
        let kept = text.len().min(StderrTail::LINE_LIMIT - self.open);
        self.bytes.extend(&text[..kept]);
        self.open += kept;
        if child_pipes {
            self.bytes.push_back(b'\n');
            self.open = 0;
        }
        while self.bytes.len() > StderrTail::LIMIT {
            // Drops whole lines. There is more than one, because a line is shorter than the limit.
            let line = self.bytes.iter().position(|byte| *byte == b'\n');
            self.bytes.drain(..=line.unwrap_or(0));
        }
    }
}

fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        if letter == '\u{1b}' && rest.as_str().starts_with('[') {
            rest = after_sequence(rest.as_str()).chars();
        } else if !letter.is_control() || matches!(letter, '\n' | '\t') {
            shown.push(letter);
        }
    }
    shown
}

/// Returns the text after a colour or cursor sequence, which ends with its first letter.
fn after_sequence(text: &str) -> &str {
    let end = |(_, letter): &(usize, char)| matches!(letter, '@'..='~' | '\n');
    match text.char_indices().skip(1).find(end) {
        Some((at, '\n')) => &text[at..],
        Some((at, _)) => &text[at + 1..],
        None => "",
    }
}

/// Shows the number of bytes and no content: children print their keys when something goes wrong.
impl fmt::Debug for StderrTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StderrTail").field("bytes", &self.lines.lock().bytes.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_child_allocates_nothing() {
        let tail = StderrTail::new();
        tail.push(b"");
        assert!(tail.is_empty() && tail.text().is_empty());
        assert_eq!(tail.lines.lock().bytes.capacity(), 0);
    }

    #[test]
    fn pieces_of_a_line_are_joined() {
        let tail = StderrTail::new();
        for piece in ["a", "b\nc", "\n", "\nd"] {
            tail.push(piece.as_bytes());
        }
        assert_eq!(tail.text(), "ab\nc\n\nd");
    }

    #[test]
    fn long_line_is_cut_and_next_line_is_complete() {
        let tail = StderrTail::new();
        for _ in 0..100 {
            tail.push(&[b'x'; 1000]);
        }
        tail.push(b"\nend\n");
        assert_eq!(tail.text(), format!("{}\nend\n", "x".repeat(StderrTail::LINE_LIMIT)));
    }

    #[test]
    fn last_lines_are_kept_complete() {
        let tail = StderrTail::new();
        for number in 0..20_000 {
            tail.push(format!("line {number}\n").as_bytes());
        }
        let text = tail.text();
        assert!(text.len() <= StderrTail::LIMIT && text.len() > StderrTail::LIMIT - 100);
        assert!(text.starts_with("line ") && text.ends_with("line 19999\n"));
    }

    #[test]
    fn control_characters_are_removed() {
        let tail = StderrTail::new();
        tail.push(b"\x1b[1;31mred\x1b[0m \x07bell\ttab\r\n\x1b]0;title\x1b[\nnext \xc2\x9bcsi");
        assert_eq!(tail.text(), "red bell\ttab\n]0;title\nnext csi");
        assert!(!format!("{tail:?}").contains("red"));
    }
}

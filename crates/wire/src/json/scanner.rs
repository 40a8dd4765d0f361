//! JSON scanner: one pass, without recursion and copies.

use std::ops::Range;

use super::{MAX_DEPTH, SyntaxError, SyntaxKind};

/// Position in a JSON text.
#[derive(Debug, Clone)]
pub(crate) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Starts at the first value of `text`.
    pub(crate) fn new(text: &'a str) -> Self {
        Self::starting_at(text, 0)
    }

    /// Starts at the first value of `text` from byte `at` on.
    pub(crate) fn starting_at(text: &'a str, at: usize) -> Self {
        let mut scanner = Self { bytes: text.as_bytes(), at };
        scanner.skip_space();
        scanner
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Checks that only white space is left.
    pub(crate) fn end(&mut self) -> Result<(), SyntaxError> {
        self.skip_space();
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.error(SyntaxKind::Trailing)) }
    }

    /// Skips the value that starts here, inside `outer` arrays and objects. Returns its range.
    pub(crate) fn value(&mut self, outer: u32) -> Result<Range<usize>, SyntaxError> {
        let start = self.at;
        // One bit for each open array (0) or object (1), so nesting needs no other memory.
        let (mut open, mut depth) = (0u128, outer);
        loop {
            match self.peek() {
                Some(bracket @ (b'{' | b'[')) => {
                    if depth >= MAX_DEPTH {
                        return Err(self.error(SyntaxKind::Depth));
                    }
                    depth += 1;
                    open = open << 1 | u128::from(bracket == b'{');
                    self.step();
                    let closing = if bracket == b'{' { b'}' } else { b']' };
                    if self.peek() != Some(closing) {
                        if bracket == b'{' {
                            self.key()?;
                        }
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            // A value is complete, or an array or object is empty: close those that end here.
            loop {
                if depth == outer {
                    return Ok(start..self.at);
                }
                self.skip_space();
                let object = open & 1 == 1;
                match self.peek() {
                    Some(b',') => {
                        self.step();
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    Some(closing) if closing == if object { b'}' } else { b']' } => {
                        self.at += 1;
                        depth -= 1;
                        open >>= 1;
                    }
                    _ => return Err(self.error(SyntaxKind::Separator)),
                }
            }
        }
    }

    /// Skips a name and its colon. Returns the range of the name.
    fn key(&mut self) -> Result<Range<usize>, SyntaxError> {
        if self.peek() != Some(b'"') {
            return Err(self.error(SyntaxKind::Key));
        }
        let start = self.at;
        self.string()?;
        let key = start..self.at;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.error(SyntaxKind::Colon));
        }
        self.step();
        Ok(key)
    }

    fn scalar(&mut self) -> Result<(), SyntaxError> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            _ => Err(self.error(SyntaxKind::Value)),
        }
    }

    fn literal(&mut self, literal: &[u8]) -> Result<(), SyntaxError> {
        for expected in literal {
            if self.peek() != Some(*expected) {
                return Err(self.error(SyntaxKind::Value));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), SyntaxError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), SyntaxError> {
        let count = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.error(SyntaxKind::Number));
        }
        self.at += count;
        Ok(())
    }

    fn string(&mut self) -> Result<(), SyntaxError> {
        self.at += 1;
        loop {
            self.at += plain_len(&self.bytes[self.at..]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(self.error(SyntaxKind::Control)),
                None => return Err(self.error(SyntaxKind::End)),
            }
        }
    }

    fn escape(&mut self) -> Result<(), SyntaxError> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.error(SyntaxKind::Escape));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.error(SyntaxKind::Escape)),
        }
        Ok(())
    }

    /// Skips one byte and the white space after it.
    fn step(&mut self) {
        self.at += 1;
        self.skip_space();
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Returns an error at this position: of this kind, or that the text ends.
    fn error(&self, kind: SyntaxKind) -> SyntaxError {
        let end = self.at >= self.bytes.len();
        SyntaxError::new(self.at, if end { SyntaxKind::End } else { kind })
    }
}

/// Returns the number of leading bytes that are neither quote, backslash nor control character.
///
/// Most strings are short. A longer one is worth the setup of a wider search.
fn plain_len(bytes: &[u8]) -> usize {
    let short = plain_len_short(&bytes[..bytes.len().min(SHORT_STRING)]);
    if short < SHORT_STRING { short } else { SHORT_STRING + plain_len_long(&bytes[SHORT_STRING..]) }
}

/// Length from which the wider search is used.
const SHORT_STRING: usize = 64;

/// Does the same as [`plain_len`], eight bytes at a time: subtracting the smallest allowed byte sets the highest bit
/// only in smaller bytes. A borrow can also affect later bytes, so only the first hit counts.
fn plain_len_short(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGHS;
    let has = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);

    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let shown = below(word, 0x20) | has(word, b'"') | has(word, b'\\');
        if shown != 0 {
            return index * 8 + usize::try_from(shown.trailing_zeros() / 8).unwrap_or_default();
        }
    }
    words.len() * 8 + rest.iter().take_while(|byte| is_plain(**byte)).count()
}

/// Does the same as [`plain_len`] with `memchr` for the end, and blocks of 64 bytes for control characters, which the
/// compiler vectorizes.
fn plain_len_long(bytes: &[u8]) -> usize {
    let end = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
    let (pieces, _) = bytes[..end].as_chunks::<64>();
    // Without early exit, the loop compiles to a few wide comparisons.
    let is_plain_piece =
        |piece: &&[u8; 64]| piece.iter().fold(0xff, |least, byte| least.min(*byte)) >= 0x20;
    let plain = pieces.iter().take_while(is_plain_piece).count() * 64;
    plain + bytes[plain..end].iter().take_while(|byte| is_plain(**byte)).count()
}

fn is_plain(byte: u8) -> bool {
    byte >= 0x20 && !matches!(byte, b'"' | b'\\')
}

/// Ranges of a member: name with quotes, and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberRange {
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// Iterator over the members of an object.
#[derive(Debug)]
pub(crate) struct Members<'a> {
    scanner: Scanner<'a>,
    outer: u32,
    first: bool,
}

impl<'a> Members<'a> {
    /// Starts at the object under `scanner`, which is inside `outer` others.
    pub(crate) fn new(mut scanner: Scanner<'a>, outer: u32) -> Option<Self> {
        if scanner.peek() != Some(b'{') {
            return None;
        }
        scanner.step();
        Some(Self { scanner, outer: outer + 1, first: true })
    }

    /// Returns the next member; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<MemberRange>, SyntaxError> {
        let Some(key) = self.next_key()? else { return Ok(None) };
        let value = self.value()?;
        Ok(Some(MemberRange { key, value }))
    }

    /// Returns the name of the next member, whose value must be skipped next; `None` at the end.
    pub(crate) fn next_key(&mut self) -> Result<Option<Range<usize>>, SyntaxError> {
        let scanner = &mut self.scanner;
        match scanner.peek() {
            Some(b'}') => {
                scanner.at += 1;
                return Ok(None);
            }
            Some(b',') if !self.first => scanner.step(),
            _ if self.first => {}
            _ => return Err(scanner.error(SyntaxKind::Separator)),
        }
        self.first = false;
        scanner.key().map(Some)
    }

    /// Skips the value of the current member.
    pub(crate) fn value(&mut self) -> Result<Range<usize>, SyntaxError> {
        let value = self.scanner.value(self.outer)?;
        self.scanner.skip_space();
        Ok(value)
    }

    /// Does the same, and passes each member of an object to `each`.
    pub(crate) fn value_with(
        &mut self,
        mut each: impl FnMut(MemberRange),
    ) -> Result<Range<usize>, SyntaxError> {
        let start = self.scanner.at;
        let Some(mut inner) = Self::new(self.scanner.clone(), self.outer) else {
            return self.value();
        };
        while let Some(slot) = inner.next()? {
            each(slot);
        }
        let value = start..inner.scanner.at;
        self.scanner = inner.scanner;
        self.scanner.skip_space();
        Ok(value)
    }

    /// Returns the scanner after the object, when all members were read.
    pub(crate) fn into_scanner(self) -> Scanner<'a> {
        self.scanner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short and long strings, every position, and bytes that resemble an end.
    #[test]
    fn end_of_string_is_found_at_every_position() {
        for length in [0, 1, 7, 8, 63, 64, 65, 127, 128, 129, 200] {
            let plain: Vec<u8> =
                (0..length).map(|n| [b'a', 0x20, 0x7f, 0x80, 0xff, b'!'][n % 6]).collect();
            assert_eq!(plain_len(&plain), length);
            for at in 0..length {
                for special in [b'"', b'\\', b'\n', 0, 0x1f] {
                    let mut bytes = plain.clone();
                    bytes[at] = special;
                    assert_eq!(plain_len(&bytes), at, "{special} at {at} of {length}");
                }
            }
        }
    }
}

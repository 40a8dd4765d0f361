//! One pass over a JSON text, without recursion and without a copy.

use std::ops::Range;

use super::{DEPTH_LIMIT, SyntaxError, SyntaxKind};

/// A place in a text that is read as JSON from there on.
#[derive(Debug, Clone)]
pub(crate) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// At the first value of `text`.
    pub(crate) fn new(text: &'a str) -> Self {
        Self::starting_at(text, 0)
    }

    /// At the first value of `text` from byte `at` on.
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

    /// Checks that nothing but white space is left.
    pub(crate) fn end(&mut self) -> Result<(), SyntaxError> {
        self.skip_space();
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.wrong(SyntaxKind::Trailing)) }
    }

    /// Passes the value that begins here, inside `outer` arrays and objects, and says where it is.
    pub(crate) fn value(&mut self, outer: u32) -> Result<Range<usize>, SyntaxError> {
        let start = self.at;
        // One bit for each open array (0) or object (1): all the memory that nesting takes.
        let (mut open, mut depth) = (0u128, outer);
        loop {
            match self.peek() {
                Some(bracket @ (b'{' | b'[')) => {
                    if depth >= DEPTH_LIMIT {
                        return Err(self.wrong(SyntaxKind::Depth));
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
            // A value is complete, or an array or object is empty: close what ends here.
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
                    _ => return Err(self.wrong(SyntaxKind::Separator)),
                }
            }
        }
    }

    /// Passes a name and its colon, up to the member's value, and says where the name is.
    fn key(&mut self) -> Result<Range<usize>, SyntaxError> {
        if self.peek() != Some(b'"') {
            return Err(self.wrong(SyntaxKind::Key));
        }
        let start = self.at;
        self.string()?;
        let key = start..self.at;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.wrong(SyntaxKind::Colon));
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
            _ => Err(self.wrong(SyntaxKind::Value)),
        }
    }

    fn literal(&mut self, literal: &[u8]) -> Result<(), SyntaxError> {
        for expected in literal {
            if self.peek() != Some(*expected) {
                return Err(self.wrong(SyntaxKind::Value));
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
            return Err(self.wrong(SyntaxKind::Number));
        }
        self.at += count;
        Ok(())
    }

    fn string(&mut self) -> Result<(), SyntaxError> {
        self.at += 1;
        loop {
            self.at += plain(&self.bytes[self.at..]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(self.wrong(SyntaxKind::Control)),
                None => return Err(self.wrong(SyntaxKind::End)),
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
                        return Err(self.wrong(SyntaxKind::Escape));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.wrong(SyntaxKind::Escape)),
        }
        Ok(())
    }

    /// Passes one byte and the white space behind it.
    fn step(&mut self) {
        self.at += 1;
        self.skip_space();
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// What is wrong here: that the text ends, if it does.
    fn wrong(&self, kind: SyntaxKind) -> SyntaxError {
        let end = self.at >= self.bytes.len();
        SyntaxError::new(self.at, if end { SyntaxKind::End } else { kind })
    }
}

/// How many bytes from the beginning are neither a quote, a backslash nor a control character.
///
/// Most strings are short and end here; what is still plain after a while is likely to be long, and
/// is looked at by wider means.
fn plain(bytes: &[u8]) -> usize {
    let near = plain_near(&bytes[..bytes.len().min(NEAR)]);
    if near < NEAR { near } else { NEAR + plain_far(&bytes[NEAR..]) }
}

/// From here on a string is a long one.
const NEAR: usize = 64;

/// As [`plain`], eight bytes at a time: a byte minus the smallest one allowed borrows into its highest
/// bit only if it was smaller. A borrow can also disturb the bytes behind it, so only the first one
/// that shows is believed.
fn plain_near(bytes: &[u8]) -> usize {
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

/// As [`plain`]: what ends a string is searched for, and what must not stand in it is looked for in
/// pieces that a processor compares at once.
fn plain_far(bytes: &[u8]) -> usize {
    let end = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
    let (pieces, _) = bytes[..end].as_chunks::<64>();
    // No early end inside of a piece: then it is a few wide comparisons.
    let calm = |piece: &&[u8; 64]| piece.iter().fold(0xff, |least, byte| least.min(*byte)) >= 0x20;
    let calm = pieces.iter().take_while(calm).count() * 64;
    calm + bytes[calm..end].iter().take_while(|byte| is_plain(**byte)).count()
}

fn is_plain(byte: u8) -> bool {
    byte >= 0x20 && !matches!(byte, b'"' | b'\\')
}

/// Where one member of an object stands: its name with the quotes, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// A walk over the members of one object.
#[derive(Debug)]
pub(crate) struct Members<'a> {
    scanner: Scanner<'a>,
    outer: u32,
    first: bool,
}

impl<'a> Members<'a> {
    /// The members of the object at which `scanner` stands, itself inside `outer` others.
    pub(crate) fn of(mut scanner: Scanner<'a>, outer: u32) -> Option<Self> {
        if scanner.peek() != Some(b'{') {
            return None;
        }
        scanner.step();
        Some(Self { scanner, outer: outer + 1, first: true })
    }

    /// The next member; `None` behind the last.
    pub(crate) fn next(&mut self) -> Result<Option<Slot>, SyntaxError> {
        let Some(key) = self.next_key()? else { return Ok(None) };
        let value = self.value()?;
        Ok(Some(Slot { key, value }))
    }

    /// The name of the next member, whose value has to be passed next; `None` behind the last.
    pub(crate) fn next_key(&mut self) -> Result<Option<Range<usize>>, SyntaxError> {
        let scanner = &mut self.scanner;
        match scanner.peek() {
            Some(b'}') => {
                scanner.at += 1;
                return Ok(None);
            }
            Some(b',') if !self.first => scanner.step(),
            _ if self.first => {}
            _ => return Err(scanner.wrong(SyntaxKind::Separator)),
        }
        self.first = false;
        scanner.key().map(Some)
    }

    /// Passes the value of the member whose name was read.
    pub(crate) fn value(&mut self) -> Result<Range<usize>, SyntaxError> {
        let value = self.scanner.value(self.outer)?;
        self.scanner.skip_space();
        Ok(value)
    }

    /// The same for an object, each member of which is shown to `each`; any other value is only passed.
    pub(crate) fn value_with(
        &mut self,
        mut each: impl FnMut(Slot),
    ) -> Result<Range<usize>, SyntaxError> {
        let start = self.scanner.at;
        let Some(mut inner) = Self::of(self.scanner.clone(), self.outer) else {
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

    /// The place behind the object, once the walk is over.
    pub(crate) fn behind(self) -> Scanner<'a> {
        self.scanner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Near and far, at every place, and with what only looks like an end.
    #[test]
    fn what_ends_a_string_is_found_wherever_it_stands() {
        for length in [0, 1, 7, 8, 63, 64, 65, 127, 128, 129, 200] {
            let calm: Vec<u8> =
                (0..length).map(|n| [b'a', 0x20, 0x7f, 0x80, 0xff, b'!'][n % 6]).collect();
            assert_eq!(plain(&calm), length);
            for at in 0..length {
                for special in [b'"', b'\\', b'\n', 0, 0x1f] {
                    let mut bytes = calm.clone();
                    bytes[at] = special;
                    assert_eq!(plain(&bytes), at, "{special} at {at} of {length}");
                }
            }
        }
    }
}

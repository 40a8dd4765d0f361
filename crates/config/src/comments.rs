//! JSON as people write it: with comments and with a comma behind the last element.

/// A comment that begins at this byte and never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unclosed(pub(crate) usize);

/// The same text as plain JSON. Everything else becomes spaces, so that each byte stays where it was
/// and an error can name the line that a person sees.
pub(crate) fn blanked(text: &str) -> Result<String, Unclosed> {
    let mut bytes = text.as_bytes().to_vec();
    if bytes.starts_with(b"\xef\xbb\xbf") {
        // Some editors put a mark before the first character.
        bytes[..3].fill(b' ');
    }
    let mut at = 0;
    let mut comma = Comma::default();
    while at < bytes.len() {
        match bytes[at..] {
            [b'"', ..] => {
                at = string_end(&bytes, at);
                comma.passed(b'"');
                continue;
            }
            [b'/', b'/', ..] => {
                let end = bytes[at..].iter().position(|byte| *byte == b'\n');
                let end = end.map_or(bytes.len(), |length| at + length);
                blank(&mut bytes[at..end]);
                at = end;
                continue;
            }
            [b'/', b'*', ..] => {
                let inner = &bytes[at + 2..];
                let length = inner.windows(2).position(|two| two == b"*/");
                let end = at + 4 + length.ok_or(Unclosed(at))?;
                blank(&mut bytes[at..end]);
                at = end;
                continue;
            }
            [b',', ..] => comma.seen(at),
            [b'}' | b']', ..] => {
                if let Some(last) = comma.superfluous() {
                    bytes[last] = b' ';
                }
                comma.passed(bytes[at]);
            }
            [byte, ..] if !byte.is_ascii_whitespace() => comma.passed(byte),
            _ => {}
        }
        at += 1;
    }
    // Only whole characters were replaced, so it is still text.
    String::from_utf8(bytes).map_err(|_| Unclosed(0))
}

/// The last comma, as long as nothing but white space follows it.
#[derive(Default)]
struct Comma {
    at: Option<usize>,
    /// What stands before it, or now.
    before: u8,
}

impl Comma {
    fn seen(&mut self, at: usize) {
        // Of two in a row neither is superfluous: one element is missing.
        self.at = (self.at.is_none() && !b"\0,{[:".contains(&self.before)).then_some(at);
        if self.at.is_none() {
            self.before = b',';
        }
    }

    fn passed(&mut self, byte: u8) {
        *self = Self { at: None, before: byte };
    }

    fn superfluous(&self) -> Option<usize> {
        self.at
    }
}

/// The byte behind the string that begins at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_last_commas_become_spaces() {
        for (text, plain) in [
            ("{\"a\":1,}", "{\"a\":1 }"),
            ("[1, /* x */ ]", "[1          ]"),
            ("// é\n[1,// y\n]//", "     \n[1     \n]  "),
            ("{\"a//b\":\"/* \\\" */\",}", "{\"a//b\":\"/* \\\" */\" }"),
            ("[[1,],]", "[[1 ] ]"),
            ("\u{feff}{}", "   {}"),
            ("/***/1", "     1"),
        ] {
            assert_eq!(blanked(text).as_deref(), Ok(plain));
            assert_eq!(plain.len(), text.len());
        }
    }

    #[test]
    fn what_is_wrong_stays_wrong() {
        for text in ["[,]", "{,}", "[1,,]", "{\"a\":,}", "/", "\"a", "\"\\", ","] {
            assert_eq!(blanked(text).as_deref(), Ok(text));
        }
        assert_eq!(blanked("{} /* x"), Err(Unclosed(3)));
        assert_eq!(blanked("/*/"), Err(Unclosed(0)));
    }
}

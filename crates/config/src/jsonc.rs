//! JSON with comments and trailing commas.

/// Offset of a comment without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnclosedComment(pub(crate) usize);

/// Converts a text to plain JSON. Comments and trailing commas become spaces, so that offsets, and with them the
/// lines in errors, stay the same.
pub(crate) fn to_json(text: &str) -> Result<String, UnclosedComment> {
    let mut bytes = text.as_bytes().to_vec();
    if bytes.starts_with(b"\xef\xbb\xbf") {
        // Byte order mark.
        bytes[..3].fill(b' ');
    }
    let mut at = 0;
    let mut comma = Comma::default();
    while at < bytes.len() {
        match bytes[at..] {
            [b'"', ..] => {
                at = string_end(&bytes, at);
                comma.set_previous(b'"');
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
                let end = at + 4 + length.ok_or(UnclosedComment(at))?;
                blank(&mut bytes[at..end]);
                at = end;
                continue;
            }
            [b',', ..] => comma.set_comma(at),
            [b'}' | b']', ..] => {
                if let Some(last) = comma.trailing() {
                    bytes[last] = b' ';
                }
                comma.set_previous(bytes[at]);
            }
            [byte, ..] if !byte.is_ascii_whitespace() => comma.set_previous(byte),
            _ => {}
        }
        at += 1;
    }
    // Only whole characters were replaced, so the text is still UTF-8.
    String::from_utf8(bytes).map_err(|_| UnclosedComment(0))
}

/// Last comma, while only white space follows it.
#[derive(Default)]
struct Comma {
    at: Option<usize>,
    /// Last byte before the comma that is not white space.
    before: u8,
}

impl Comma {
    fn set_comma(&mut self, at: usize) {
        // Two commas in a row are an error, so neither is removed.
        self.at = (self.at.is_none() && !b"\0,{[:".contains(&self.before)).then_some(at);
        if self.at.is_none() {
            self.before = b',';
        }
    }

    fn set_previous(&mut self, byte: u8) {
        *self = Self { at: None, before: byte };
    }

    fn trailing(&self) -> Option<usize> {
        self.at
    }
}

/// Returns the offset after the string that starts at `start`.
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
    fn comments_and_trailing_commas_become_spaces() {
        for (text, plain) in [
            ("{\"a\":1,}", "{\"a\":1 }"),
            ("[1, /* x */ ]", "[1          ]"),
            ("// é\n[1,// y\n]//", "     \n[1     \n]  "),
            ("{\"a//b\":\"/* \\\" */\",}", "{\"a//b\":\"/* \\\" */\" }"),
            ("[[1,],]", "[[1 ] ]"),
            ("\u{feff}{}", "   {}"),
            ("/***/1", "     1"),
        ] {
            assert_eq!(to_json(text).as_deref(), Ok(plain));
            assert_eq!(plain.len(), text.len());
        }
    }

    #[test]
    fn invalid_json_stays_invalid() {
        for text in ["[,]", "{,}", "[1,,]", "{\"a\":,}", "/", "\"a", "\"\\", ","] {
            assert_eq!(to_json(text).as_deref(), Ok(text));
        }
        assert_eq!(to_json("{} /* x"), Err(UnclosedComment(3)));
        assert_eq!(to_json("/*/"), Err(UnclosedComment(0)));
    }
}

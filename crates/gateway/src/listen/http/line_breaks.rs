//! Line breaks and framing headers in the head of a request.

/// Headers that say where a body ends. A head may have one of them, once: hyper merges equal lengths, and prefers chunks to
/// a length, before the gateway sees the headers.
const FRAMING: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

/// Length of the longest of those names, with the colon.
const NAME: usize = 18;

/// Checks that each line of a head ends with a carriage return and a line feed, and that at most one line says where the
/// body ends. hyper also accepts a line feed alone, and several such lines, which a proxy in front of the gateway may
/// read differently (request smuggling).
#[derive(Default)]
pub(super) struct LineBreaks {
    /// The head has ended, or was refused.
    ended: bool,
    /// There was a line that is not blank. Blank lines before a request are ignored.
    begun: bool,
    /// There was a framing header.
    is_framed: bool,
    /// Length of the current line in the parts before this one, its first bytes, and the last byte of them.
    length: usize,
    first: [u8; NAME],
    last: u8,
}

impl LineBreaks {
    /// Checks the next part of the head. The line feed of a line that is refused becomes a NUL, which hyper refuses
    /// everywhere in a head.
    pub(super) fn check(&mut self, part: &mut [u8]) {
        let mut start = 0;
        while !self.ended {
            let Some(length) = memchr::memchr(b'\n', &part[start..]) else { break };
            let end = start + length;
            let before = if end == 0 { self.last } else { part[end - 1] };
            if before != b'\r' || !self.is_first_framing(&part[start..end]) {
                part[end] = 0;
                self.ended = true;
                return;
            }
            let is_blank = self.length + length == 1;
            self.ended = is_blank && self.begun;
            self.begun |= !is_blank;
            (self.length, start) = (0, end + 1);
        }
        self.skip(&part[start..]);
    }

    /// Begins the next head. Its first bytes may have come with the request before it.
    pub(super) fn begin_head(&mut self) {
        (self.ended, self.begun, self.is_framed) = (false, false, false);
    }

    /// Notes the last line of bytes that are not checked: of a body, or of a head that came before the answer to the
    /// request before it.
    pub(super) fn skip(&mut self, part: &[u8]) {
        let mut rest = part;
        if let Some(at) = memchr::memrchr(b'\n', part) {
            (self.length, rest) = (0, &part[at + 1..]);
        }
        let known = self.length.min(NAME);
        let more = rest.len().min(NAME - known);
        self.first[known..known + more].copy_from_slice(&rest[..more]);
        self.length += rest.len();
        self.last = part.last().copied().unwrap_or(self.last);
    }

    /// Whether a line, whose last part this is, is no second framing header.
    fn is_first_framing(&mut self, line: &[u8]) -> bool {
        let is_framing = match self.length {
            0 => is_framing(line),
            before => {
                let known = before.min(NAME);
                let more = line.len().min(NAME - known);
                self.first[known..known + more].copy_from_slice(&line[..more]);
                is_framing(&self.first[..known + more])
            }
        };
        let is_second = is_framing && self.is_framed;
        self.is_framed |= is_framing;
        !is_second
    }
}

/// Whether a line is a framing header.
fn is_framing(line: &[u8]) -> bool {
    // Most lines begin with another letter.
    matches!(line.first(), Some(b'c' | b'C' | b't' | b'T'))
        && FRAMING.iter().any(|name| {
            line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
                && line.get(name.len()) == Some(&b':')
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &[u8] = b"\r\nPOST / HTTP/1.1\r\nHost: localhost\r\nX-Y: 0123456789\r\n\r\n";

    /// Checks a request in two parts.
    fn checked(request: &[u8], cut: usize) -> Vec<u8> {
        let (mut breaks, mut request) = (LineBreaks::default(), request.to_vec());
        let (one, two) = request.split_at_mut(cut);
        breaks.check(one);
        breaks.check(two);
        request
    }

    proptest! {
        /// R171: a line feed alone is found at every position of the head, however the head arrives.
        #[test]
        fn bare_line_feed_is_found_at_every_position(at in 0..HEAD.len() - 1, cut in 0..HEAD.len()) {
            let mut head = HEAD.to_vec();
            head[at] = b'\n';
            let is_bare = at == 0 || head[at - 1] != b'\r';
            prop_assert_eq!(checked(&head, cut).contains(&0), is_bare || b"\r".contains(&HEAD[at]));
        }

        /// R171: a second framing header is found, however the head arrives.
        #[test]
        fn second_framing_header_is_found(cut in 0..80_usize, one in 0..3_usize, other in 0..3_usize) {
            let lines = ["Content-Length: 5\r\n", "transfer-encoding: chunked\r\n", "content-length:5\r\n"];
            let head = format!("POST / HTTP/1.1\r\n{}x: y\r\n{}\r\n", lines[one], lines[other]);
            let cut = cut.min(head.len());
            prop_assert!(checked(head.as_bytes(), cut).contains(&0), "{head}");
            let head = format!("POST / HTTP/1.1\r\n{}content-lengths: 5\r\nct: x\r\n\r\n", lines[one]);
            let cut = cut.min(head.len());
            prop_assert!(!checked(head.as_bytes(), cut).contains(&0), "{head}");
        }

        /// A head that is cut anywhere passes unchanged, also if its first part came during another request.
        #[test]
        fn head_that_began_during_another_request_passes(cut in 0..HEAD.len()) {
            let (mut breaks, mut before) = (LineBreaks::default(), HEAD.to_vec());
            breaks.check(&mut before);
            breaks.begin_head();
            breaks.skip(&HEAD[..cut]);
            breaks.begin_head();
            let mut rest = HEAD[cut..].to_vec();
            breaks.check(&mut rest);
            prop_assert_eq!(rest, &HEAD[cut..]);
        }

        /// A head with whole line breaks passes unchanged, and so does any body behind it.
        #[test]
        fn valid_head_and_any_body_pass_unchanged(cut in 0..HEAD.len() + 4) {
            let request = [HEAD, b"\n\na\n"].concat();
            prop_assert_eq!(checked(&request, cut), request);
        }
    }
}

//! Line breaks in the head of a request.

/// Checks that each line of a head ends with a carriage return and a line feed. hyper also accepts a line feed alone,
/// which a proxy in front of the gateway may take for a part of the line (request smuggling).
#[derive(Default)]
pub(super) struct LineBreaks {
    /// The head has ended, or was refused.
    ended: bool,
    /// There was a line that is not blank. Blank lines before a request are ignored.
    begun: bool,
    /// Length of the current line in the parts before this one, and the last byte of them.
    length: usize,
    last: u8,
}

impl LineBreaks {
    /// Checks the next part of the head. A line feed alone becomes a NUL, which hyper refuses everywhere in a head.
    pub(super) fn check(&mut self, part: &mut [u8]) {
        let mut start = 0;
        while !self.ended {
            let Some(length) = memchr::memchr(b'\n', &part[start..]) else { break };
            let end = start + length;
            let before = if end == 0 { self.last } else { part[end - 1] };
            if before != b'\r' {
                part[end] = 0;
                self.ended = true;
                return;
            }
            let is_blank = self.length + length == 1;
            self.ended = is_blank && self.begun;
            self.begun |= !is_blank;
            (self.length, start) = (0, end + 1);
        }
        self.length += part.len() - start;
        self.last = part.last().copied().unwrap_or(self.last);
    }
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
        /// E40: a line feed alone is found at every position of the head, however the head arrives.
        #[test]
        fn bare_line_feed_is_found_at_every_position(at in 0..HEAD.len() - 1, cut in 0..HEAD.len()) {
            let mut head = HEAD.to_vec();
            head[at] = b'\n';
            let is_bare = at == 0 || head[at - 1] != b'\r';
            prop_assert_eq!(checked(&head, cut).contains(&0), is_bare || b"\r".contains(&HEAD[at]));
        }

        /// A head with whole line breaks passes unchanged, and so does any body behind it.
        #[test]
        fn valid_head_and_any_body_pass_unchanged(cut in 0..HEAD.len() + 4) {
            let request = [HEAD, b"\n\na\n"].concat();
            prop_assert_eq!(checked(&request, cut), request);
        }
    }
}

//! End of a response body.

use std::io;

use bytes::{Buf as _, Bytes, BytesMut};

use super::{copy, invalid_response};

/// Longest line between chunks, and most bytes of trailers after the last chunk.
const MAX_LINE: usize = 16 << 10;

/// Pieces up to this size are copied out of the buffer they came in.
const MAX_COPIED_PIECE: usize = 4 << 10;

/// Rule that finds the end of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Number of bytes that are still to come.
    Length(u64),
    Chunked(Chunks),
    /// The body ends with the connection.
    Close,
}

/// Decoder of a chunked body. Input that can be read in two ways is refused.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks(Chunk);

/// Next element of a chunked body.
#[derive(Debug, Default, PartialEq, Eq)]
enum Chunk {
    /// Length line of a chunk.
    #[default]
    Size,
    /// Remaining bytes of a chunk.
    Data(u64),
    /// Line break after a chunk.
    Break,
    /// Trailers after the last chunk, with the number of bytes that came.
    Trailer(usize),
    /// Nothing: the body is complete.
    End,
    /// Nothing that could be read: the body is invalid, and its end is unknown.
    Broken,
}

/// Result of one step of decoding.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Part of the body.
    Data(Bytes),
    /// More input is needed.
    More,
    /// The body is complete.
    End,
}

impl Framing {
    pub(super) fn chunked() -> Self {
        Self::Chunked(Chunks::default())
    }

    /// Takes the next piece out of the bytes that came.
    pub(super) fn next(&mut self, came: &mut BytesMut) -> io::Result<Piece> {
        match self {
            Self::Length(0) => Ok(Piece::End),
            Self::Length(left) => Ok(some(came, left)),
            Self::Close => {
                let mut endless = u64::MAX;
                Ok(some(came, &mut endless))
            }
            Self::Chunked(chunks) => chunks.next(came),
        }
    }
}

impl Chunks {
    /// Takes the next piece out of the bytes that came.
    ///
    /// # Errors
    /// If the input is not chunked. Every later call fails, too: no byte after an error is part of a body or of
    /// a message.
    fn next(&mut self, came: &mut BytesMut) -> io::Result<Piece> {
        loop {
            match self.0.next(came) {
                Ok(Some(piece)) => return Ok(piece),
                Ok(None) => {}
                Err(error) => {
                    self.0 = Chunk::Broken;
                    return Err(error);
                }
            }
        }
    }
}

impl Chunk {
    /// Makes one step. Returns `None` for a step between two pieces.
    fn next(&mut self, came: &mut BytesMut) -> io::Result<Option<Piece>> {
        match self {
            Self::Size => {
                if came.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) {
                    // The line cannot become valid, so there is no need to wait for its end.
                    return Err(invalid_response("a chunk has no length"));
                }
                let Some(line) = line(came)? else { return Ok(Some(Piece::More)) };
                let size = size(&line).ok_or_else(|| invalid_response("a chunk has no length"))?;
                *self = if size == 0 { Self::Trailer(0) } else { Self::Data(size) };
            }
            Self::Data(0) => *self = Self::Break,
            Self::Data(left) => return Ok(Some(some(came, left))),
            Self::Break => {
                if came.len() < 2 {
                    return Ok(Some(Piece::More));
                }
                if came.get_u16() != u16::from_be_bytes(*b"\r\n") {
                    return Err(invalid_response("a chunk is longer than it says"));
                }
                *self = Self::Size;
            }
            // Trailers have no meaning in MCP.
            Self::Trailer(length) => {
                let Some(line) = line(came)? else { return Ok(Some(Piece::More)) };
                *length += line.len();
                if *length > MAX_LINE {
                    return Err(invalid_response("too much stands behind the last chunk"));
                }
                if line.is_empty() {
                    *self = Self::End;
                } else if !is_field(&line) {
                    return Err(invalid_response("a line behind the last chunk is no header"));
                }
            }
            Self::End => return Ok(Some(Piece::End)),
            Self::Broken => return Err(invalid_response("the body was broken before")),
        }
        Ok(None)
    }
}

/// Takes as many bytes as are there, and at most `left`.
fn some(came: &mut BytesMut, left: &mut u64) -> Piece {
    let length = came.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
    if length == 0 {
        return Piece::More;
    }
    *left -= length as u64;
    if length == came.len() {
        return Piece::Data(std::mem::take(came).freeze());
    }
    if length > MAX_COPIED_PIECE {
        return Piece::Data(came.split_to(length).freeze());
    }
    let data = copy(&came[..length]);
    came.advance(length);
    Piece::Data(data)
}

/// Takes a whole line, without its line break.
fn line(came: &mut BytesMut) -> io::Result<Option<BytesMut>> {
    let Some(end) = came.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
        let endless = came.len() >= MAX_LINE;
        return if endless { Err(invalid_response("a line has no end")) } else { Ok(None) };
    };
    let mut line = came.split_to(end + 1);
    // Other parsers read a lone line feed as part of the line.
    if !line.ends_with(b"\r\n") {
        return Err(invalid_response("a line ends in half a line break"));
    }
    line.truncate(end - 1);
    // Other parsers end a line at a lone carriage return, or a text at NUL.
    if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err(invalid_response("a line has a control character"));
    }
    Ok(Some(line))
}

/// Returns whether a line is a header: a name, a colon directly after it, and a value.
fn is_field(line: &[u8]) -> bool {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let end = line.iter().position(|byte| !is_token(byte));
    end.is_some_and(|end| end > 0 && line[end] == b':')
}

/// Returns the length of a chunk. Chunk extensions after it are ignored.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii_end();
    let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a body that comes in `parts`. Returns the body, whether it is complete, and the bytes after it.
    fn read(mut framing: Framing, parts: &[&[u8]]) -> io::Result<(Vec<u8>, bool, Vec<u8>)> {
        let (mut came, mut all) = (BytesMut::new(), Vec::new());
        for part in parts {
            came.extend_from_slice(part);
            loop {
                match framing.next(&mut came)? {
                    Piece::Data(data) => all.extend_from_slice(&data),
                    Piece::More => break,
                    Piece::End => return Ok((all, true, came.to_vec())),
                }
            }
        }
        Ok((all, false, came.to_vec()))
    }

    const CHUNKS: &[u8] =
        b"5\r\nhello\r\n1;x=\"y\"\r\n \r\n00a \r\nwide world\r\n0\r\nX: y\r\nZ: 1\r\n\r\nnext";

    #[test]
    fn chunks_are_joined() {
        let (all, whole, left) = read(Framing::chunked(), &[CHUNKS]).unwrap();
        assert_eq!((&all[..], whole, &left[..]), (&b"hello wide world"[..], true, &b"next"[..]));
        assert!(!read(Framing::chunked(), &[b"5\r\nhello\r\n0\r\n"]).unwrap().1);
    }

    #[test]
    fn invalid_chunks_are_refused() {
        for fields in [
            &b"x\r\n"[..],
            b"\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b"5\nhello",
            b"5\r\nhelloo\r\n",
            b"10000000000000000\r\n",
            &[b'1'; MAX_LINE],
            &[b"0\r\n".to_vec(), vec![b'x'; MAX_LINE]].concat(),
            b"5\r\r\nhello\r\n",
            b"5;a\rb\r\nhello\r\n",
            b"5;\0\r\nhello\r\n",
            b"0\r\nx\r\n\r\n",
            b"0\r\nx : y\r\n\r\n",
            b"0\r\n: y\r\n\r\n",
            b"0\r\nx: y\r\n z\r\n\r\n",
            b"0\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            assert!(read(Framing::chunked(), &[fields]).is_err(), "{fields:?}");
        }
    }

    /// A broken body has no known end, so nothing after it is read, even if it looks valid.
    #[test]
    fn broken_decoder_stays_broken() {
        for broken in
            ["1\nx\n", "1g\r\n", "10000000000000000\r\n", "1_0\r\n", "1\r\nxy\r\n", "0\r\nx: y\n"]
        {
            let (mut chunks, mut came) = (Chunks::default(), BytesMut::from(broken));
            came.extend_from_slice(b"1\r\nx\r\n0\r\n\r\n");
            let failed = std::iter::from_fn(|| chunks.next(&mut came).ok()).count();
            assert!(failed <= 1, "{broken:?}");
            for _ in 0..20 {
                assert!(chunks.next(&mut came).is_err(), "{broken:?}");
            }
            came.clear();
            came.extend_from_slice(b"0\r\n\r\n");
            assert!(chunks.next(&mut came).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn body_ends_at_its_length() {
        let read = |length, fields: &[u8]| read(Framing::Length(length), &[fields]).unwrap();
        assert_eq!(read(3, b"abcd"), (b"abc".to_vec(), true, b"d".to_vec()));
        assert_eq!(read(3, b"ab"), (b"ab".to_vec(), false, vec![]));
        assert_eq!(read(0, b"ab"), (vec![], true, b"ab".to_vec()));
    }

    proptest! {
        /// A body is the same wherever its bytes are split.
        #[test]
        fn split_body_is_the_same(cuts in proptest::collection::vec(0..CHUNKS.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.extend([0, CHUNKS.len()]);
            cuts.sort_unstable();
            let parts: Vec<_> = cuts.windows(2).map(|cut| &CHUNKS[cut[0]..cut[1]]).collect();
            let (all, whole, _) = read(Framing::chunked(), &parts).unwrap();
            prop_assert_eq!((&all[..], whole), (&b"hello wide world"[..], true));
        }
    }
}

//! Messages from standard input or a socket, one per line.

use std::borrow::Cow;

use stayput_wire::{LineSplitter, LineTooLong, Message};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Number of bytes per read.
const CHUNK: usize = 64 << 10;

/// Line reader.
pub(crate) struct Lines<R> {
    reader: R,
    splitter: LineSplitter,
    chunk: Vec<u8>,
    /// Part of the chunk that is not split yet.
    rest: std::ops::Range<usize>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        let splitter = LineSplitter::new(Message::MAX_BYTES);
        Self { reader, splitter, chunk: vec![0; CHUNK], rest: 0..0 }
    }

    /// Returns the next line; `None` at the end of the input. An unterminated last line is dropped. Cancel-safe: no
    /// data is lost if the future is dropped while it waits.
    pub(crate) async fn next(&mut self) -> Option<Result<Vec<u8>, LineTooLong>> {
        loop {
            let mut rest = self.chunk.get(self.rest.clone()).unwrap_or_default();
            let line = self.splitter.next_line(&mut rest).map(|line| line.map(Cow::into_owned));
            self.rest.start = self.rest.end - rest.len();
            if line.is_some() {
                return line;
            }
            match self.reader.read(&mut self.chunk).await {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.rest = 0..read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_split_and_an_unterminated_line_is_dropped() {
        let mut lines = Lines::new(&b"{\"a\":1}\r\n\n{\"b\":2}\n{\"c\""[..]);
        assert_eq!(lines.next().await.unwrap().unwrap(), br#"{"a":1}"#);
        assert_eq!(lines.next().await.unwrap().unwrap(), br#"{"b":2}"#);
        assert!(lines.next().await.is_none());
    }
}

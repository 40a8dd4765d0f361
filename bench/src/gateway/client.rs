//! Cheapest correct HTTP/1.1 client: one persistent connection, one request at a time. The processor time it saves is
//! left to the measured program.

use std::{io, net::SocketAddr};

use memchr::memmem;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// One connection.
pub(super) struct Client {
    address: SocketAddr,
    socket: TcpStream,
    /// Received bytes of the answer that is being read.
    received: Vec<u8>,
    /// Body of a chunked answer.
    joined: Vec<u8>,
    /// Head of the previous answer, parsed once, because the next one is nearly always the same.
    last: (Vec<u8>, Head),
}

/// Answer.
pub(super) struct Reply<'a> {
    pub(super) status: u16,
    /// Value of its `Mcp-Session-Id`.
    pub(super) session: Option<String>,
    pub(super) body: &'a [u8],
}

impl Reply<'_> {
    /// Returns whether its body contains this text.
    pub(super) fn has(&self, what: &str) -> bool {
        memmem::find(self.body, what.as_bytes()).is_some()
    }
}

/// Parsed head of an answer.
#[derive(Clone, Default)]
struct Head {
    status: u16,
    session: Option<String>,
    /// `None` if it is chunked.
    length: Option<usize>,
    closes: bool,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let (socket, received) = (dial(address).await?, Vec::with_capacity(16 << 10));
        Ok(Self { address, socket, received, joined: Vec::new(), last: Default::default() })
    }

    /// Sends a whole request and reads the whole answer.
    pub(super) async fn send(&mut self, request: &[u8]) -> io::Result<Reply<'_>> {
        self.socket.write_all(request).await?;
        self.received.clear();
        self.more().await?;
        while !self.is_as_last() && !self.find_head()? {
            self.more().await?;
        }
        let (end, Head { status, session, length, closes }) =
            (self.last.0.len(), self.last.1.clone());
        match length {
            Some(length) => {
                while self.received.len() < end + length {
                    self.more().await?;
                }
            }
            None => self.join(end).await?,
        }
        if closes {
            self.socket = dial(self.address).await?;
        }
        let body = length.map_or(&self.joined[..], |length| &self.received[end..end + length]);
        Ok(Reply { status, session, body })
    }

    /// Returns whether the answer begins like the previous one.
    fn is_as_last(&self) -> bool {
        !self.last.0.is_empty() && self.received.starts_with(&self.last.0)
    }

    /// Parses the head of the answer, if it is complete.
    fn find_head(&mut self) -> io::Result<bool> {
        let Some(at) = memmem::find(&self.received, b"\r\n\r\n") else { return Ok(false) };
        let head = &self.received[..at + 4];
        let said = Head::parse(head).ok_or(io::ErrorKind::InvalidData)?;
        self.last = (head.to_owned(), said);
        Ok(true)
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.socket.read_buf(&mut self.received).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Joins the chunks from `at` on.
    async fn join(&mut self, mut at: usize) -> io::Result<()> {
        self.joined.clear();
        loop {
            let line = loop {
                match memmem::find(&self.received[at..], b"\r\n") {
                    Some(length) => break at..at + length,
                    None => self.more().await?,
                }
            };
            let size = std::str::from_utf8(&self.received[line.clone()]).ok();
            let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
            let size = size.ok_or(io::ErrorKind::InvalidData)?;
            let begin = line.end + 2;
            while self.received.len() < begin + size + 2 {
                self.more().await?;
            }
            self.joined.extend_from_slice(&self.received[begin..begin + size]);
            at = begin + size + 2;
            if size == 0 {
                return Ok(());
            }
        }
    }
}

async fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

impl Head {
    fn parse(head: &[u8]) -> Option<Self> {
        let head = std::str::from_utf8(head).ok()?;
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let mut parsed = Self { status, session: None, length: Some(0), closes: false };
        for line in lines {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                parsed.length = Some(value.parse().ok()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                parsed.length = None;
            } else if name.eq_ignore_ascii_case("mcp-session-id") {
                parsed.session = Some(value.to_owned());
            } else if name.eq_ignore_ascii_case("connection") {
                parsed.closes = value.eq_ignore_ascii_case("close");
            }
        }
        Some(parsed)
    }
}

//! HTTP/1.1 as it is spoken to servers that are reached straight and without encryption: those next
//! door, where a call costs little more than what is done here.
//!
//! Whoever asks writes and reads by himself, on a connection that nobody else has: there is no task, no
//! queue and no lock on the way. What is encrypted or goes through a proxy is spoken by hyper.
//!
//! | file | what it is about |
//! |---|---|
//! | `shelf.rs` | connections that nobody uses |
//! | `line.rs` | a connection that somebody uses |
//! | `head.rs` | the heads of requests and answers |
//! | `framing.rs` | where the body of an answer ends |
//! | `reader.rs` | the body of an answer |

mod framing;
mod head;
mod line;
mod reader;
mod shelf;

use std::{future::poll_fn, io, sync::Arc};

use ::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use tokio::{net::TcpStream, runtime::Handle};

use super::{
    ClientSettings, HttpError, Target,
    dial::Dial,
    request::{Order, Taken},
};
use crate::Delivery;
pub use framing::{Chunks, Piece};
use line::{Failed, Line, Out};
use reader::Coming;
pub(super) use reader::Reader;
use shelf::Shelves;

/// Speaks HTTP/1.1 over connections that its clones share.
#[derive(Clone)]
pub(super) struct Plain {
    shelves: Arc<Shelves>,
    dial: Dial,
}

/// An answer, as far as it has come.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Reader,
}

impl Plain {
    pub(super) fn new(settings: &ClientSettings, dial: Dial, runtime: Handle) -> Self {
        Self { shelves: Shelves::new(settings, runtime), dial }
    }

    /// The same with connections of its own.
    pub(super) fn apart(&self) -> Self {
        Self { shelves: self.shelves.apart(), dial: self.dial.clone() }
    }

    /// Whether no clone of it, and no answer that comes by it, is in use elsewhere.
    pub(super) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.shelves) == 1
    }

    /// Sends a request once, and gives the head of its answer. A kept connection that turns out to be
    /// closed before it took a byte is replaced.
    pub(super) async fn send(&self, order: &Order<'_>) -> Result<Answer, HttpError> {
        let Order { request, more, taken } = *order;
        let broken = |delivery: Delivery, error: &io::Error| {
            HttpError::broken(delivery, &request.url, &error.to_string())
        };
        let mut out = Out::new(request, more);
        let origin = request.url.origin();
        loop {
            let kept = poll_fn(|cx| self.shelves.take(origin, cx)).await;
            let (tcp, fresh) = match kept {
                Some(tcp) => (tcp, false),
                // In a box, as all that is rare: every call would have to be as large.
                None => Box::pin(self.connect(&request.url, taken)).await?,
            };
            let mut line = Line::new(tcp, out);
            match poll_fn(|cx| line.poll_head(&request.method, taken, cx)).await {
                Ok(head) => {
                    let (status, headers) = (head.status, head.headers);
                    let coming =
                        Coming::new(line, head.framing, head.keep, &self.shelves, &request.url);
                    return Ok(Answer { status, headers, body: Reader::new(coming) });
                }
                Err(Failed::Unsent(_)) if !fresh => out = line.into_unsent(),
                Err(Failed::Unsent(error)) => return Err(broken(taken.delivery(), &error)),
                Err(Failed::Sent(error)) => return Err(broken(Delivery::Unknown, &error)),
            }
        }
    }
}

impl Plain {
    /// A connection, and whether it is a new one: if one that is in use becomes free first, it is that.
    async fn connect(&self, to: &Target, taken: &Taken) -> Result<(TcpStream, bool), HttpError> {
        tokio::select! {
            biased;
            tcp = self.shelves.wish(to) => Ok((tcp, false)),
            dialled = self.dial.straight(to, taken) => Ok((dialled?, true)),
        }
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("what it sent is not HTTP/1.1: {what}"))
}

/// As large as it has to be, and nothing that it was cut out of is kept.
fn copy(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

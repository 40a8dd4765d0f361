//! HTTP/1.1 client for servers that are reached directly and without TLS: local servers, where a call costs
//! little more than the work that is done here.
//!
//! The caller writes and reads by itself, on a connection that no other caller has: there is no task, no queue
//! and no lock on the way. Connections with TLS or through a proxy use hyper.
//!
//! | file | content |
//! |---|---|
//! | `shelf.rs` | idle connections |
//! | `line.rs` | connections in use |
//! | `head.rs` | heads of requests and responses |
//! | `framing.rs` | end of a response body |
//! | `reader.rs` | response body |

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
use line::{Failed, Line, Out};
use reader::Coming;
pub(super) use reader::Reader;
use shelf::Shelves;

/// HTTP/1.1 client whose clones share their connections.
#[derive(Clone)]
pub(super) struct Plain {
    shelves: Arc<Shelves>,
    dial: Dial,
}

/// Response, as far as it was received.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Reader,
}

impl Plain {
    pub(super) fn new(settings: &ClientSettings, dial: Dial, runtime: Handle) -> Self {
        Self { shelves: Shelves::new(settings, runtime), dial }
    }

    /// Returns the same client with its own connections.
    pub(super) fn apart(&self) -> Self {
        Self { shelves: self.shelves.apart(), dial: self.dial.clone() }
    }

    /// Returns whether no clone of it, and no response that came through it, is in use elsewhere.
    pub(super) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.shelves) == 1
    }

    /// Sends a request once, and returns the head of its response. A kept connection that turns out to be
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
                // Boxed, because the future of every call would otherwise be as large as this rare one.
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
    /// Returns a connection, and whether it is new. If a connection in use becomes free before a new one is
    /// open, it is that one.
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

/// Copies bytes into a buffer of their exact size, so that the buffer they were cut out of is not kept.
fn copy(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

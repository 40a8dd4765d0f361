//! HTTP/1.1 client for servers that are reached directly and without TLS: local servers, where a call costs
//! little more than the work that is done here.
//!
//! The caller writes and reads by itself, on a connection that no other caller has: there is no task, no queue
//! and no lock on the way. Connections with TLS or through a proxy use hyper.
//!
//! | file | content |
//! |---|---|
//! | `idle.rs` | idle connections |
//! | `conn.rs` | connections in use |
//! | `head.rs` | heads of requests and responses |
//! | `framing.rs` | end of a response body |
//! | `reader.rs` | response body |

mod conn;
mod framing;
mod head;
mod idle;
mod reader;

use std::{future::poll_fn, io, sync::Arc};

use ::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use conn::{Conn, ExchangeError, OutgoingRequest};
use idle::IdlePool;
use reader::IncomingBody;
use tokio::{net::TcpStream, runtime::Handle};

use super::{
    ClientSettings, HttpError, Target,
    dial::Dial,
    request::{PreparedRequest, SentFlag},
};
use crate::Delivery;

pub(super) use reader::{MAX_RESERVED, Reader};

/// HTTP/1.1 client whose clones share their connections.
#[derive(Clone)]
pub(super) struct Plain {
    pool: Arc<IdlePool>,
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
        Self { pool: IdlePool::new(settings, runtime), dial }
    }

    /// Returns the same client with its own connections.
    pub(super) fn with_own_pool(&self) -> Self {
        Self { pool: self.pool.with_own_pool(), dial: self.dial.clone() }
    }

    /// Sends a request once, and returns the head of its response. A kept connection that turns out to be
    /// closed before it took a byte is replaced.
    pub(super) async fn send(&self, order: &PreparedRequest<'_>) -> Result<Answer, HttpError> {
        let PreparedRequest { request, more, sent } = *order;
        let broken = |delivery: Delivery, error: &io::Error| {
            HttpError::broken(delivery, &request.url, &error.to_string())
        };
        let mut out = OutgoingRequest::new(request, more);
        let origin = request.url.origin();
        loop {
            let kept = poll_fn(|cx| self.pool.take(origin, cx)).await;
            let (tcp, fresh) = match kept {
                Some(tcp) => (tcp, false),
                // Boxed, because the future of every call would otherwise be as large as this rare one.
                None => Box::pin(self.connect(&request.url, sent)).await?,
            };
            let mut conn = Conn::new(tcp, out);
            match poll_fn(|cx| conn.poll_head(&request.method, sent, cx)).await {
                Ok(head) => {
                    let (status, headers) = (head.status, head.headers);
                    let coming =
                        IncomingBody::new(conn, head.framing, head.keep, &self.pool, &request.url);
                    return Ok(Answer { status, headers, body: Reader::new(coming) });
                }
                Err(ExchangeError::Unsent(_)) if !fresh => out = conn.into_unsent(),
                Err(ExchangeError::Unsent(error)) => return Err(broken(sent.delivery(), &error)),
                Err(ExchangeError::Sent(error)) => return Err(broken(Delivery::Unknown, &error)),
            }
        }
    }
}

impl Plain {
    /// Returns a connection, and whether it is new. If a connection in use becomes free before a new one is
    /// open, it is that one.
    async fn connect(&self, to: &Target, sent: &SentFlag) -> Result<(TcpStream, bool), HttpError> {
        tokio::select! {
            biased;
            tcp = self.pool.wait_for_idle(to) => Ok((tcp, false)),
            dialled = self.dial.connect_direct(to, sent) => Ok((dialled?, true)),
        }
    }
}

fn closed_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")
}

fn invalid_response(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("what it sent is not HTTP/1.1: {what}"))
}

/// Copies bytes into a buffer of their exact size, so that the buffer they were cut out of is not kept.
fn copy(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

//! Body of a response, as hyper takes it.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use hyper::body::{Body, Frame, SizeHint};
use stayput_wire::header as mcp;

use super::state::ConnState;
use crate::reply::Reply;

/// Body of a response. It ends when the client loses access. Dropping it ends the request: hyper drops it when the
/// last part is in its buffer, or with the connection.
pub(super) struct Answer {
    reply: Reply,
    state: Arc<ConnState>,
}

impl Answer {
    /// Prepares a response for hyper. `keeps` is false if the connection has to close after it. `unused` are the headers
    /// of the request: hyper keeps the map of a response for the next request, and this map has the right size.
    pub(super) fn prepare(
        mut response: Response<Reply>,
        state: Arc<ConnState>,
        (mut unused, keeps): (HeaderMap, bool),
    ) -> Response<Self> {
        if response.headers().is_empty() {
            unused.clear();
            *response.headers_mut() = unused;
        }
        let (is_message, headers) = (
            matches!(response.body(), Reply::Whole(text, _) if !text.is_empty()),
            response.headers_mut(),
        );
        if is_message && !headers.contains_key(header::CONTENT_TYPE) {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(mcp::JSON));
        }
        if !keeps {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.map(|reply| {
            let reply = match reply {
                Reply::GuardedStream(guarded) => {
                    state.watch(guarded.access);
                    guarded.stream
                }
                reply => reply,
            };
            Self { reply, state }
        })
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let is_stream = !matches!(this.reply, Reply::Whole(..));
        if is_stream && this.state.is_lost() {
            return Poll::Ready(None);
        }
        Pin::new(&mut this.reply).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.reply.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.state.end_request();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicBool, Ordering},
    };

    use hyper::{server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::{super::socket::Socket, *};
    use crate::{
        identify::tests::Fixture,
        reply::{self, AfterWrite},
    };

    /// The action after a write does not run when the client is gone.
    #[tokio::test]
    async fn disconnected_client_does_not_trigger_the_after_write_action() {
        let world = Fixture::new().await;
        for stays in [true, false] {
            let (mut client, socket) = tokio::io::duplex(1 << 10);
            let state = Arc::new(ConnState::new(world.app.clone(), None));
            let io = TokioIo::new(Socket::new(socket, state.clone(), 8 << 10));
            let ran = Arc::new(AtomicBool::new(false));
            let service = service_fn(|_| {
                state.begin_request();
                let flag = ran.clone();
                let then = AfterWrite::new(None, move || flag.store(true, Ordering::Relaxed));
                let response = reply::message_then("{}", Some(then));
                let response = Answer::prepare(response, state.clone(), (HeaderMap::new(), true));
                async { Ok::<_, Infallible>(response) }
            });
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            let reads = async move {
                let mut answer = [0; 15];
                if stays {
                    client.read_exact(&mut answer).await.unwrap();
                    assert_eq!(&answer, b"HTTP/1.1 200 OK");
                }
            };
            let served = http1::Builder::new().serve_connection(io, service);
            if stays {
                assert!(tokio::join!(served, reads).0.is_ok());
            } else {
                drop(reads);
                assert!(served.await.is_err());
            }
            assert_eq!(ran.load(Ordering::Relaxed), stays);
        }
    }
}

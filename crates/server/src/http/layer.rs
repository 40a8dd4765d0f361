//! What goes around a service over HTTP.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{ResponseBody, ResponseFuture};
use crate::ServerSessions;

/// Tells every request of a service its session: reads what names it, checks whose it is, and lets handlers have
/// its [`State`](crate::State). See [`ServerSessions::layer`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SessionLayer {
    sessions: ServerSessions,
}

impl SessionLayer {
    pub(crate) fn new(sessions: ServerSessions) -> Self {
        Self { sessions }
    }
}

impl ServerSessions {
    /// What goes around a service over HTTP: rmcp's `StreamableHttpService`, a router of axum, or any other.
    pub fn layer(&self) -> SessionLayer {
        SessionLayer::new(self.clone())
    }
}

impl<S> tower_layer::Layer<S> for SessionLayer {
    type Service = SessionService<S>;

    fn layer(&self, inner: S) -> SessionService<S> {
        SessionService { sessions: self.sessions.clone(), inner }
    }
}

/// A service whose requests know their session. See [`ServerSessions::layer`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SessionService<S> {
    sessions: ServerSessions,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for SessionService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + From<Bytes> + Unpin + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was asked whether it is ready is the one that is called.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        ResponseFuture::new(self.sessions.clone(), inner, request)
    }
}

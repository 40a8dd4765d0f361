//! Tower layer that provides sessions to a service.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{ResponseBody, ResponseFuture};
use crate::ServerSessions;

/// Layer that identifies the session of every request, checks its owner and provides its [`State`](crate::State) to
/// handlers. See [`ServerSessions::layer`].
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
    /// Returns the layer for an HTTP service: rmcp's `StreamableHttpService`, an axum router, or any other.
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

/// Service wrapped by [`SessionLayer`].
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
        // `poll_ready` was called on this instance, so this one is called and the clone is kept.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        ResponseFuture::new(self.sessions.clone(), inner, request)
    }
}

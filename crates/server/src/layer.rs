//! What goes around a service over HTTP.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::{Keeper, Serving, answer::Answer};

/// Tells every request of a service its session: reads what names it, checks whose it is, and lets handlers have
/// its [`State`](crate::State). See [`Keeper::layer`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Layer {
    keeper: Keeper,
}

impl Layer {
    pub(crate) fn new(keeper: Keeper) -> Self {
        Self { keeper }
    }
}

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Layered<S>;

    fn layer(&self, inner: S) -> Layered<S> {
        Layered { keeper: self.keeper.clone(), inner }
    }
}

/// A service whose requests know their session. See [`Keeper::layer`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Layered<S> {
    keeper: Keeper,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for Layered<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + From<Bytes> + Unpin + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    type Response = Response<Answer<R>>;
    type Error = S::Error;
    type Future = Serving<S, B, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was asked whether it is ready is the one that is called.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Serving::new(self.keeper.clone(), inner, request)
    }
}

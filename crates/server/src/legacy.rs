//! Clients that shake hands: what rmcp needs to go on with them in another process.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::combinators::BoxBody;
use rmcp::{
    ServerHandler,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::{SessionState, SessionStore, SessionStoreError},
    },
};
use tower_service::Service;

use crate::{Error, Keeper, Layered, Manager, carrier::connection_name, scope};

impl Keeper {
    /// A whole service over HTTP for both eras: rmcp's, with [`Keeper::manager`] and [`Keeper::session_store`], and
    /// [`Keeper::layer`] around it.
    ///
    /// ```no_run
    /// # fn example(cart: impl rmcp::ServerHandler + Clone + Sync) {
    /// let keeper = stayput_server::Keeper::memory();
    /// let app: axum::Router = axum::Router::new().route_service("/mcp", keeper.http(move || Ok(cart.clone())));
    /// # }
    /// ```
    pub fn http<S: ServerHandler>(
        &self,
        server: impl Fn() -> io::Result<S> + Send + Sync + 'static,
    ) -> Layered<Whole<S>> {
        self.http_with(server, StreamableHttpServerConfig::default().with_json_response(true))
    }

    /// The same with a configuration of your own, such as the names of hosts that it may be reached by.
    pub fn http_with<S: ServerHandler>(
        &self,
        server: impl Fn() -> io::Result<S> + Send + Sync + 'static,
        mut config: StreamableHttpServerConfig,
    ) -> Layered<Whole<S>> {
        config.session_store = Some(self.session_store());
        let service = StreamableHttpService::new(server, self.manager(), config);
        tower_layer::Layer::layer(&self.layer(), Whole(Arc::new(service)))
    }

    /// rmcp's store of sessions, on the store of this keeper: a client that shook hands goes on after a restart and
    /// on another replica, under its `Mcp-Session-Id`, with its state. Only for services inside [`Keeper::layer`],
    /// which tells whose they are.
    #[must_use]
    pub fn session_store(&self) -> Arc<dyn SessionStore> {
        Arc::new(Connections(self.clone()))
    }
}

/// rmcp's service over HTTP. What it is made of is there once: whoever routes to a service makes a copy for every
/// request. See [`Keeper::http`].
pub struct Whole<S>(Arc<StreamableHttpService<S, Manager>>);

impl<S> Clone for Whole<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> fmt::Debug for Whole<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Whole(…)")
    }
}

impl<S, B> Service<Request<B>> for Whole<S>
where
    S: ServerHandler,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: fmt::Display,
{
    type Response = Response<BoxBody<Bytes, Infallible>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move { Ok(service.handle(request).await) })
    }
}

/// Connections of clients, each for its owner alone.
struct Connections(Keeper);

#[async_trait]
impl SessionStore for Connections {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let visit = scope::current().ok_or(Error::NotKept)?;
        let name = connection_name(visit.owner(), id.as_bytes());
        let found = self.0.shared().store.connection(name).await?;
        let Some(body) = found.map(|it| it.body).filter(|body| !body.is_empty()) else {
            return Ok(None);
        };
        Ok(Some(serde_json::from_slice(&body)?))
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        let visit = scope::current().ok_or(Error::NotKept)?;
        let name = connection_name(visit.owner(), id.as_bytes());
        self.0.tend();
        let body = serde_json::to_vec(state)?;
        Ok(self.0.shared().connect(visit.owner(), name, body).await?)
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        let visit = scope::current().ok_or(Error::NotKept)?;
        let name = connection_name(visit.owner(), id.as_bytes());
        Ok(self.0.shared().disconnect(name).await?)
    }
}

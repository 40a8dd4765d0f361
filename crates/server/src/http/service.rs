//! rmcp's HTTP service, and the store of its legacy connections.

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

use super::{HttpSessionManager, SessionService};
use crate::{Error, ServerSessions, names::connection_hash, request::scope};

impl ServerSessions {
    /// Returns an HTTP service for both eras: rmcp's service with [`ServerSessions::session_manager`] and
    /// [`ServerSessions::session_store`], wrapped by [`ServerSessions::layer`].
    ///
    /// ```no_run
    /// # fn example(cart: impl rmcp::ServerHandler + Clone + Sync) {
    /// let sessions = stayput_server::ServerSessions::in_memory();
    /// let app: axum::Router = axum::Router::new().route_service("/mcp", sessions.http_service(move || Ok(cart.clone())));
    /// # }
    /// ```
    pub fn http_service<S: ServerHandler>(
        &self,
        server: impl Fn() -> io::Result<S> + Send + Sync + 'static,
    ) -> SessionService<HttpService<S>> {
        self.http_service_with(
            server,
            StreamableHttpServerConfig::default().with_json_response(true),
        )
    }

    /// Does the same with your own configuration, for example of the allowed hosts.
    pub fn http_service_with<S: ServerHandler>(
        &self,
        server: impl Fn() -> io::Result<S> + Send + Sync + 'static,
        mut config: StreamableHttpServerConfig,
    ) -> SessionService<HttpService<S>> {
        config.session_store = Some(self.session_store());
        let service = StreamableHttpService::new(server, self.session_manager(), config);
        tower_layer::Layer::layer(&self.layer(), HttpService(Arc::new(service)))
    }

    /// Returns rmcp's session store, backed by the store of these sessions: a legacy client continues after a restart
    /// and on another replica, with the same `Mcp-Session-Id` and the same state. Only for services inside
    /// [`ServerSessions::layer`], which provides the owner.
    #[must_use]
    pub fn session_store(&self) -> Arc<dyn SessionStore> {
        Arc::new(ConnectionStore(self.clone()))
    }
}

/// rmcp's HTTP service behind an `Arc`, because routers clone a service for every request. See
/// [`ServerSessions::http_service`].
pub struct HttpService<S>(Arc<StreamableHttpService<S, HttpSessionManager>>);

impl<S> Clone for HttpService<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> fmt::Debug for HttpService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpService(…)")
    }
}

impl<S, B> Service<Request<B>> for HttpService<S>
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

/// Connections of legacy clients, stored per owner.
struct ConnectionStore(ServerSessions);

#[async_trait]
impl SessionStore for ConnectionStore {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let request_session = scope::current().ok_or(Error::LayerMissing)?;
        let name = connection_hash(request_session.owner(), id.as_bytes());
        let found = self.0.registry().store.load_connection(name).await?;
        let Some(body) = found.map(|it| it.body).filter(|body| !body.is_empty()) else {
            return Ok(None);
        };
        Ok(Some(serde_json::from_slice(&body)?))
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        let request_session = scope::current().ok_or(Error::LayerMissing)?;
        let name = connection_hash(request_session.owner(), id.as_bytes());
        self.0.start_sweeper();
        let body = serde_json::to_vec(state)?;
        Ok(self.0.registry().connect(request_session.owner(), name, body).await?)
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        let request_session = scope::current().ok_or(Error::LayerMissing)?;
        let name = connection_hash(request_session.owner(), id.as_bytes());
        Ok(self.0.registry().disconnect(name).await?)
    }
}

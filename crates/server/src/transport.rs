//! Sessions over transports that serve one client, such as stdio.

use std::{future::Future, sync::Arc};

use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, ClientRequest, GetExtensions as _},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{IntoTransport, Transport},
};
use stayput_core::{InvalidText, Key, Owner};

use crate::{
    ServerSessions,
    registry::TransportSession,
    request::{RequestSession, SessionExtension, parse},
};

impl ServerSessions {
    /// Wraps a transport, so that its client has a session: created by the first request that needs state, replaced
    /// when the client initializes again, and ended with the transport.
    ///
    /// ```no_run
    /// # async fn example(cart: impl rmcp::ServerHandler) -> Result<(), Box<dyn std::error::Error>> {
    /// use rmcp::ServiceExt as _;
    ///
    /// let sessions = stayput_server::ServerSessions::in_memory();
    /// cart.serve(sessions.wrap_transport((tokio::io::empty(), tokio::io::sink()))).await?.waiting().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wrap_transport<T, E, A>(
        &self,
        transport: T,
    ) -> SessionTransport<impl Transport<RoleServer, Error = E> + use<T, E, A>>
    where
        T: IntoTransport<RoleServer, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let session = TransportSession::new(Owner::local(), None);
        SessionTransport {
            sessions: self.clone(),
            session,
            received: None,
            inner: transport.into_transport(),
        }
    }
}

/// Transport with a session. See [`ServerSessions::wrap_transport`].
#[derive(Debug)]
#[must_use]
pub struct SessionTransport<T> {
    sessions: ServerSessions,
    session: Arc<TransportSession>,
    /// Message received but not returned yet, because `receive` may be cancelled.
    received: Option<RxJsonRpcMessage<RoleServer>>,
    inner: T,
}

impl<T> SessionTransport<T> {
    /// Gives the session a name, by which a later transport finds it again: the session outlives the transport.
    ///
    /// # Errors
    /// Returns an error if the name is empty, too long or not printable.
    pub fn with_name(mut self, name: &str) -> Result<Self, InvalidText> {
        self.session = TransportSession::new(self.session.owner().clone(), Some(Key::named(name)?));
        Ok(self)
    }

    /// Ends the session. If the store fails, the session expires.
    fn end(&self) -> impl Future<Output = ()> + Send + use<T> {
        let (session, registry) = (self.session.clone(), self.sessions.registry().clone());
        async move {
            let _ = session.end(&registry).await;
        }
    }

    /// Inserts the session extension into a request.
    fn attach_session(&self, message: &mut RxJsonRpcMessage<RoleServer>) {
        if let ClientJsonRpcMessage::Request(request) = message {
            let info = parse::parse_typed(&self.sessions, &self.session, &mut request.request);
            let request_session =
                RequestSession::new(self.sessions.clone(), self.session.owner().clone(), info);
            request.request.extensions_mut().insert(SessionExtension(request_session));
        }
    }
}

fn is_initialize(message: &RxJsonRpcMessage<RoleServer>) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else { return false };
    matches!(request.request, ClientRequest::InitializeRequest(_))
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for SessionTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        if self.received.is_none() {
            self.received = self.inner.receive().await;
        }
        // R053, R054: a client that initializes again gets a new session, and the session ends with the transport.
        if self.received.as_ref().is_none_or(is_initialize) {
            self.end().await;
        }
        let mut message = self.received.take()?;
        self.attach_session(&mut message);
        Some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.end().await;
        self.inner.close().await
    }
}

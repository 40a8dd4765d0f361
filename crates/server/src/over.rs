//! What goes around a transport that is a line of its own, such as standard input and output.

use std::{future::Future, sync::Arc};

use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, ClientRequest, GetExtensions as _},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{IntoTransport, Transport},
};
use stayput_core::{InvalidText, Key, Owner};

use crate::{
    Keeper, ask,
    line::Line,
    visit::{Carried, Visit},
};

impl Keeper {
    /// The same transport, with a session for whoever is at its other end: made by the first request that wants
    /// state, replaced when the client shakes hands again, and ended with the transport.
    ///
    /// ```no_run
    /// # async fn example(cart: impl rmcp::ServerHandler) -> Result<(), Box<dyn std::error::Error>> {
    /// use rmcp::ServiceExt as _;
    ///
    /// let keeper = stayput_server::Keeper::memory();
    /// cart.serve(keeper.over((tokio::io::empty(), tokio::io::sink()))).await?.waiting().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn over<T, E, A>(
        &self,
        transport: T,
    ) -> Kept<impl Transport<RoleServer, Error = E> + use<T, E, A>>
    where
        T: IntoTransport<RoleServer, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let line = Line::new(Owner::local(), None);
        Kept { keeper: self.clone(), line, received: None, inner: transport.into_transport() }
    }
}

/// A transport with a session. See [`Keeper::over`].
#[derive(Debug)]
#[must_use]
pub struct Kept<T> {
    keeper: Keeper,
    line: Arc<Line>,
    /// What came and was not passed on yet: whoever waits may be cancelled.
    received: Option<RxJsonRpcMessage<RoleServer>>,
    inner: T,
}

impl<T> Kept<T> {
    /// Its session has this name, and so outlives the transport: whoever comes again under this name finds it.
    ///
    /// # Errors
    /// If the name is empty, too long or unprintable.
    pub fn named(mut self, name: &str) -> Result<Self, InvalidText> {
        self.line = Line::new(self.line.owner().clone(), Some(Key::named(name)?));
        Ok(self)
    }

    /// Ends the session of the line. If the store does not do it, expiry does.
    fn end(&self) -> impl Future<Output = ()> + Send + use<T> {
        let (line, shared) = (self.line.clone(), self.keeper.shared().clone());
        async move {
            let _ = line.end(&shared).await;
        }
    }

    /// Tells a request its session.
    fn tell(&self, message: &mut RxJsonRpcMessage<RoleServer>) {
        if let ClientJsonRpcMessage::Request(request) = message {
            let meant = ask::typed(&self.keeper, &self.line, &mut request.request);
            let visit = Visit::new(self.keeper.clone(), self.line.owner().clone(), meant);
            request.request.extensions_mut().insert(Carried(visit));
        }
    }
}

fn is_handshake(message: &RxJsonRpcMessage<RoleServer>) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else { return false };
    matches!(request.request, ClientRequest::InitializeRequest(_))
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Kept<T> {
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
        // R053, R054: a client that shakes hands again begins anew, and one that goes leaves nothing.
        if self.received.as_ref().is_none_or(is_handshake) {
            self.end().await;
        }
        let mut message = self.received.take()?;
        self.tell(&mut message);
        Some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.end().await;
        self.inner.close().await
    }
}

//! New connections: TCP, a proxy where one applies, TLS where the URL demands it.

use std::{
    error::Error,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use ::http::{Uri, uri::Scheme};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{HttpConnector, proxy::Tunnel},
    rt::TokioIo,
};
use rustls::ClientConfig;
use tokio::{net::TcpStream, runtime::Handle, task::JoinHandle, time::timeout};
use tower_service::Service;

use super::{
    ClientSettings, HttpError, HttpErrorKind, Phase, Target,
    error::{find, reasons},
    proxy::{Proxies, ProxyRoute},
    request::SentFlag,
    stream::Stream,
};
use crate::Worker;

/// Opens connections for the pool. The pool has a clone of it for each request, so it is small.
#[derive(Clone)]
pub(super) struct Dial(Arc<DialSettings>);

/// Connector, time limit and runtime of new connections.
struct DialSettings {
    https: HttpsConnector<Route>,
    limit: Duration,
    runtime: Handle,
}

/// Connector to a server, without the TLS to that server.
#[derive(Clone)]
struct Route {
    tcp: HttpConnector,
    /// Connector to a proxy, which may need its own TLS.
    to_proxy: HttpsConnector<HttpConnector>,
    proxies: Option<Arc<Proxies>>,
}

/// Reason why there is no connection. Nothing was sent then.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(super) struct DialError {
    pub(super) kind: HttpErrorKind,
    pub(super) reason: String,
}

type BoxError = Box<dyn Error + Send + Sync>;
type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl Dial {
    pub(super) fn new(
        settings: &ClientSettings,
        tls: Arc<ClientConfig>,
        proxies: Option<Arc<Proxies>>,
        runtime: Handle,
    ) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // Requests are small, and a caller waits for each: none is held back for a fuller packet.
        tcp.set_nodelay(true);
        // Divided among all addresses of a host, so that a dead one does not use up the whole time.
        tcp.set_connect_timeout(Some(settings.connect));
        tcp.set_keepalive(settings.keep_alive);
        tcp.set_keepalive_interval(settings.keep_alive.map(|time| time / 4));
        tcp.set_keepalive_retries(settings.keep_alive.map(|_| 4));
        let to_proxy = HttpsConnector::from((tcp.clone(), tls.clone()));
        let https = HttpsConnector::from((Route { tcp, to_proxy, proxies }, tls));
        Self(Arc::new(DialSettings { https, limit: settings.connect, runtime }))
    }
}

impl Dial {
    /// Opens a connection without TLS to a server that no proxy stands before.
    pub(super) async fn connect_direct(
        &self,
        to: &Target,
        sent: &SentFlag,
    ) -> Result<TcpStream, HttpError> {
        let dialled = self.clone().call(to.uri().clone()).await;
        let error = match dialled {
            Ok(MaybeHttpsStream::Http(Stream { io: MaybeHttpsStream::Http(tcp), .. })) => {
                return Ok(tcp.into_inner());
            }
            Ok(_) => DialError::invalid_proxy_reply(),
            Err(error) => error,
        };
        Err(HttpError::unconnected(error.kind, sent.delivery(), to, &error.reason))
    }
}

impl Service<Uri> for Dial {
    type Response = MaybeHttpsStream<Stream>;
    type Error = DialError;
    type Future = Boxed<Self::Response, DialError>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let DialSettings { https, limit, runtime } = &*self.0;
        let (limit, connecting) = (*limit, https.clone().call(to));
        let connected = async move {
            match timeout(limit, connecting).await {
                Ok(outcome) => outcome.map_err(DialError::last_step),
                Err(_) => Err(DialError::timed_out(&format!("it took longer than {limit:?}"))),
            }
        };
        // A socket belongs to the runtime it was opened on, and must outlive the runtime of the caller.
        let task = AbortOnDrop(Worker::runtime_or(runtime).spawn(connected));
        Box::pin(async move { task.await.unwrap_or_else(|_| Err(DialError::no_runtime())) })
    }
}

impl Service<Uri> for Route {
    type Response = Stream;
    type Error = DialError;
    type Future = Boxed<Stream, DialError>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let via = self.proxies.as_ref().and_then(|proxies| proxies.proxy_for(&to));
        let Some(via) = via else {
            let connecting = self.tcp.call(to);
            return Box::pin(async move {
                let io = connecting.await.map_err(|error| DialError::unreached(&error))?;
                Ok(Stream { io: MaybeHttpsStream::Http(io), forwarded: false })
            });
        };
        let to_proxy = self.to_proxy.clone();
        Box::pin(async move {
            let forwarded = to.scheme() != Some(&Scheme::HTTPS);
            let proxy = via.uri.clone();
            let connected = through(to_proxy, via, to).await;
            let io = connected.map_err(|error| DialError::proxied(&proxy, &error))?;
            Ok(Stream { io, forwarded })
        })
    }
}

/// Connects to the proxy. An http request goes to the proxy as it is; an https request goes through a tunnel,
/// so that the proxy sees the host and no more.
async fn through(
    mut to_proxy: HttpsConnector<HttpConnector>,
    via: ProxyRoute,
    to: Uri,
) -> Result<MaybeHttpsStream<TokioIo<TcpStream>>, BoxError> {
    if !matches!(via.uri.scheme_str(), Some("http" | "https")) {
        return Err("only proxies that speak HTTP can be used, http:// or https://".into());
    }
    if to.scheme() != Some(&Scheme::HTTPS) {
        return to_proxy.call(via.uri).await;
    }
    let mut tunnel = Tunnel::new(via.uri, to_proxy);
    if let Some(authorization) = via.authorization {
        tunnel = tunnel.with_auth(authorization);
    }
    Ok(tunnel.call(to).await?)
}

impl DialError {
    fn unreached(error: &(dyn Error + 'static)) -> Self {
        // The words of the connector say no more than the sentence around them.
        let reason = reasons(error);
        let reason = reason.strip_prefix("tcp connect error: ").unwrap_or(&reason).to_owned();
        if find::<io::Error>(error).is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return Self::timed_out(&reason);
        }
        Self { kind: HttpErrorKind::Connect, reason }
    }

    fn proxied(proxy: &Uri, error: &BoxError) -> Self {
        let text = reasons(&**error);
        let text = text.strip_prefix("tunnel error: ").unwrap_or(&text);
        let (scheme, host) = (proxy.scheme_str().unwrap_or("http"), proxy.authority());
        let host = host.map_or("", |host| host.as_str());
        Self { kind: HttpErrorKind::Proxy, reason: format!("{scheme}://{host}: {text}") }
    }

    /// Converts an error of the connector. The steps before TLS have their own errors, so any other error comes
    /// from TLS, the last step.
    fn last_step(error: BoxError) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => *error,
            Err(error) => Self { kind: HttpErrorKind::Tls, reason: reasons(&*error) },
        }
    }

    fn timed_out(reason: &str) -> Self {
        Self { kind: HttpErrorKind::Timeout(Phase::Connect), reason: reason.to_owned() }
    }

    fn invalid_proxy_reply() -> Self {
        let reason = "the way there is not the one that was chosen".to_owned();
        Self { kind: HttpErrorKind::Connect, reason }
    }

    fn no_runtime() -> Self {
        let reason = "the runtime of this client has ended".to_owned();
        Self { kind: HttpErrorKind::Connect, reason }
    }
}

/// Task that is aborted when its handle is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Proxy, Trust};

    /// R139: small packets are not held back. That is an option of the socket, so the test checks the option.
    #[tokio::test]
    async fn connection_sets_tcp_nodelay() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = ClientSettings { proxy: Proxy::None, ..ClientSettings::default() };
        let tls = Trust::default().config().unwrap();
        let mut dial = Dial::new(&settings, tls, None, Handle::current());
        let uri = format!("http://{}/", server.local_addr().unwrap());
        let stream = dial.call(uri.parse().unwrap()).await.unwrap();
        let MaybeHttpsStream::Http(Stream { io: MaybeHttpsStream::Http(tcp), .. }) = stream else {
            panic!("it is encrypted");
        };
        assert!(tcp.inner().nodelay().unwrap());
    }
}

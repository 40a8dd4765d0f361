//! Client that sends requests over shared connections.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use ::http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode, Uri,
    header::{AUTHORIZATION, PROXY_AUTHORIZATION},
    uri::Scheme,
};
use hyper::rt::Executor;
use hyper_util::{
    client::legacy::{Client as Pool, Error as PoolError, connect::capture_connection},
    rt::TokioTimer,
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

use super::{
    Body, ClientError, ClientSettings, HttpError, Phase, Request, Target,
    body::Source,
    dial::{Dial, DialError},
    error::{find, reasons},
    plain::{self, Plain},
    proxy::Proxies,
    redirect,
    request::{OutgoingBody, PreparedRequest, SentFlag},
};
use crate::Delivery;

/// Sends requests over connections that all its clones share. One client is enough for all sessions of all
/// servers that are reached by the same [`ClientSettings`].
///
/// Connections are opened when they are needed and kept for a while after that. They and their tasks end when
/// the last clone and the last [`Body`] are dropped.
#[derive(Clone)]
pub struct Client {
    /// Client for connections with neither TLS nor a proxy.
    plain: Plain,
    pool: Pool<Dial, OutgoingBody>,
    proxies: Option<Arc<Proxies>>,
    /// Connector for the pool of a separate client.
    dial: Dial,
    kind: PoolSettings,
}

/// Settings of a connection pool.
#[derive(Clone)]
struct PoolSettings {
    runtime: Handle,
    idle: Duration,
    most: usize,
}

impl PoolSettings {
    fn build(&self, dial: Dial) -> Pool<Dial, OutgoingBody> {
        Pool::builder(RuntimeExecutor(self.runtime.clone()))
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(self.idle)
            .pool_max_idle_per_host(self.most)
            .build(dial)
    }
}

/// Head of a response, and the body that follows it.
#[derive(Debug)]
pub struct Response {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers from the server, without those about the connection.
    pub headers: HeaderMap,
    /// Body, which is still being received.
    pub body: Body,
}

/// Response of the plain client or of hyper.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    source: Source,
}

impl Answer {
    fn into_response(self, request: &Request) -> Response {
        let body = Body::new(self.source, request.url.clone(), request.idle);
        Response { status: self.status, headers: self.headers, body }
    }
}

/// Runtime of the connections.
#[derive(Clone)]
struct RuntimeExecutor(Handle);

impl<F> Executor<F> for RuntimeExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

impl Client {
    /// Builds a client. Reads the files and variables that `settings` names; opens no connection.
    ///
    /// # Errors
    /// If a file or variable cannot be used, or there is no runtime.
    pub fn new(settings: &ClientSettings) -> Result<Self, ClientError> {
        let runtime = match &settings.runtime {
            Some(runtime) => runtime.clone(),
            None => Handle::try_current().map_err(|_| ClientError::NoRuntime)?,
        };
        let proxies = Proxies::new(&settings.proxy)?.map(Arc::new);
        let tls = settings.trust.config()?;
        let dial = Dial::new(settings, tls, proxies.clone(), runtime.clone());
        let plain = Plain::new(settings, dial.clone(), runtime.clone());
        let kind = PoolSettings { runtime, idle: settings.idle, most: settings.max_idle };
        let pool = kind.build(dial.clone());
        Ok(Self { plain, pool, proxies, dial, kind })
    }

    /// Returns a client that reaches servers in the same way, over its own connections. Expensive parts, such
    /// as the trusted certificates, are shared.
    #[must_use]
    pub fn with_own_pool(&self) -> Self {
        let pool = self.kind.build(self.dial.clone());
        Self { plain: self.plain.with_own_pool(), pool, ..self.clone() }
    }

    /// Sends `request` and returns once the head of the response is there.
    ///
    /// The request is executed at most once. If a kept connection turns out to be closed before anything was
    /// written to it, the request goes over another one. Redirects are followed up to five times, at the same
    /// origin only: 307 and 308 for any method, 301, 302 and 303 for GET and HEAD.
    ///
    /// Dropping this future midway closes the connection of the request; the server can still have executed it.
    ///
    /// # Errors
    /// If no response head comes, or it redirects the request to where it must not go.
    pub async fn send(&self, request: Request) -> Result<Response, HttpError> {
        self.send_with(&request, &[]).await
    }

    /// Sends like [`Client::send`], with additional headers that override those of the request. They are put
    /// into a header map only when they are sent.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_with(
        &self,
        request: &Request,
        more: &[(HeaderName, HeaderValue)],
    ) -> Result<Response, HttpError> {
        request.check()?;
        let (limit, sent) = (request.first_byte, SentFlag::default());
        let order = PreparedRequest { request, more, sent: &sent };
        // A deadline that cannot be represented means no limit and no timer.
        let deadline = (limit < Duration::MAX).then(|| Instant::now().checked_add(limit)).flatten();
        let Some(deadline) = deadline else { return self.follow(&order).await };
        // Boxed, because the future of every call would otherwise be as large as this one.
        match Box::pin(timeout_at(deadline, self.follow(&order))).await {
            Ok(outcome) => outcome,
            Err(_) => Err(timed_out(&sent, &request.url, limit)),
        }
    }

    async fn follow(&self, order: &PreparedRequest<'_>) -> Result<Response, HttpError> {
        let (answer, request) = (self.once(order).await?, order.request);
        match redirect::next(request, answer.status, &answer.headers)? {
            None => Ok(answer.into_response(request)),
            Some(next) => {
                tracing::debug!(status = answer.status.as_u16(), "redirect followed");
                Box::pin(self.sent_on(order, next)).await
            }
        }
    }

    /// Sends a request on to the target of a redirect, and follows further redirects.
    async fn sent_on(
        &self,
        order: &PreparedRequest<'_>,
        next: Target,
    ) -> Result<Response, HttpError> {
        let mut request = Request { url: next, ..order.request.clone() };
        for _ in 0..redirect::MAX_REDIRECTS {
            let answer = self.once(&PreparedRequest { request: &request, ..*order }).await?;
            let Some(next) = redirect::next(&request, answer.status, &answer.headers)? else {
                return Ok(answer.into_response(&request));
            };
            request.url = next;
        }
        Err(redirect::endless(&request))
    }

    async fn once(&self, order: &PreparedRequest<'_>) -> Result<Answer, HttpError> {
        if !self.is_direct(order.request.url.uri()) {
            // Boxed, because the future of every call would otherwise be as large as this one.
            return Box::pin(self.through_pool(order)).await;
        }
        let plain::Answer { status, headers, body } = self.plain.send(order).await?;
        Ok(Answer { status, headers, source: Source::Plain(body) })
    }

    /// Returns whether the connection needs neither TLS nor a proxy.
    fn is_direct(&self, to: &Uri) -> bool {
        let proxied = || self.proxies.as_ref().is_some_and(|it| it.proxy_for(to).is_some());
        to.scheme() == Some(&Scheme::HTTP) && !proxied()
    }

    async fn through_pool(&self, order: &PreparedRequest<'_>) -> Result<Answer, HttpError> {
        let PreparedRequest { request, more, sent } = *order;
        let mut outgoing = ::http::Request::new(OutgoingBody::new(request, sent.clone()));
        *outgoing.method_mut() = request.method.clone();
        *outgoing.uri_mut() = request.url.uri().clone();
        // Cloned: the connection keeps the headers, and a redirect needs them again.
        let headers = outgoing.headers_mut();
        *headers = request.headers.clone();
        headers.reserve(more.len() + 1);
        for (name, value) in more {
            headers.insert(name, value.clone());
        }
        self.add_credentials(&request.url, headers);
        let connection = capture_connection(&mut outgoing);
        let answer = self.pool.request(outgoing).await;
        let answer = answer.map_err(|error| failure(&error, sent.delivery(), &request.url))?;
        let (head, body) = answer.into_parts();
        let source = Source::Hyper(body, connection);
        Ok(Answer { status: head.status, headers: head.headers, source })
    }

    fn add_credentials(&self, to: &Target, headers: &mut HeaderMap) {
        if let Some(authorization) = to.authorization() {
            headers.entry(AUTHORIZATION).or_insert_with(|| authorization.clone());
        }
        if let Some(authorization) = self.forwarding(to.uri()) {
            headers.insert(PROXY_AUTHORIZATION, authorization);
        }
    }

    /// Returns the credentials for a proxy that reads the request itself. A tunnel got them when it was opened,
    /// and they must not go further.
    fn forwarding(&self, to: &Uri) -> Option<HeaderValue> {
        let proxies = self.proxies.as_ref().filter(|_| to.scheme() == Some(&Scheme::HTTP))?;
        proxies.proxy_for(to)?.authorization
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("proxies", &self.proxies).finish_non_exhaustive()
    }
}

fn timed_out(sent: &SentFlag, to: &Target, limit: Duration) -> HttpError {
    let delivery = sent.delivery();
    let phase = if delivery == Delivery::NotSent { Phase::Connect } else { Phase::FirstByte };
    HttpError::timed_out(phase, delivery, to, limit)
}

fn failure(error: &PoolError, delivery: Delivery, to: &Target) -> HttpError {
    // The pool's own message only names its failed step; the cause is the source.
    let cause: &(dyn Error + 'static) = error.source().unwrap_or(error);
    if let Some(dialled) = find::<DialError>(cause) {
        return HttpError::unconnected(dialled.kind, delivery, to, &dialled.reason);
    }
    HttpError::broken(delivery, to, &reasons(cause))
}

//! Sends requests over connections that are shared.

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
    request::{Order, Outgoing, Taken},
};
use crate::Delivery;

/// Sends requests over connections that all its clones share, so one is enough for all sessions of all
/// servers that are reached by the same [`ClientSettings`].
///
/// Connections are opened when they are needed and kept for a while after that. When the last clone and
/// the last [`Body`] are gone, so are the connections and their tasks.
#[derive(Clone)]
pub struct Client {
    /// Where there is neither encryption nor a proxy.
    plain: Plain,
    pool: Pool<Dial, Outgoing>,
    proxies: Option<Arc<Proxies>>,
    /// What another pool is made of.
    dial: Dial,
    kind: PoolKind,
}

/// How a pool keeps its connections.
#[derive(Clone)]
struct PoolKind {
    runtime: Handle,
    idle: Duration,
    most: usize,
}

impl PoolKind {
    fn build(&self, dial: Dial) -> Pool<Dial, Outgoing> {
        Pool::builder(Home(self.runtime.clone()))
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(self.idle)
            .pool_max_idle_per_host(self.most)
            .build(dial)
    }
}

/// The head of an answer, and the body that follows it.
#[derive(Debug)]
pub struct Response {
    /// What became of the request.
    pub status: StatusCode,
    /// As the server sent them, without what is about the connection.
    pub headers: HeaderMap,
    /// Still on its way.
    pub body: Body,
}

/// An answer, whoever reads it.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    source: Source,
}

impl Answer {
    fn of(self, request: &Request) -> Response {
        let body = Body::new(self.source, request.url.clone(), request.idle);
        Response { status: self.status, headers: self.headers, body }
    }
}

/// Where the connections live.
#[derive(Clone)]
struct Home(Handle);

impl<F> Executor<F> for Home
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

impl Client {
    /// Reads the files and variables that `settings` name; connects to nothing.
    ///
    /// # Errors
    /// If one of them cannot be used, or there is no runtime.
    pub fn new(settings: &ClientSettings) -> Result<Self, ClientError> {
        let runtime = match &settings.runtime {
            Some(runtime) => runtime.clone(),
            None => Handle::try_current().map_err(|_| ClientError::NoRuntime)?,
        };
        let proxies = Proxies::new(&settings.proxy)?.map(Arc::new);
        let tls = settings.trust.config()?;
        let dial = Dial::new(settings, tls, proxies.clone(), runtime.clone());
        let plain = Plain::new(settings, dial.clone(), runtime.clone());
        let kind = PoolKind { runtime, idle: settings.idle, most: settings.max_idle };
        let pool = kind.build(dial.clone());
        Ok(Self { plain, pool, proxies, dial, kind })
    }

    /// A client that reaches servers in the same way, over connections of its own. What is expensive, such
    /// as the certificates that are trusted, is shared.
    pub(crate) fn apart(&self) -> Self {
        let pool = self.kind.build(self.dial.clone());
        Self { plain: self.plain.apart(), pool, ..self.clone() }
    }

    /// Whether no clone of it is in use elsewhere.
    pub(crate) fn is_unused(&self) -> bool {
        self.plain.is_unused()
    }

    /// Sends `request` and returns when the head of its answer is there.
    ///
    /// It is executed at most once. If a kept connection turns out to be closed before anything was
    /// written to it, the request goes over another one. Answers that send it on are followed up to
    /// five times, at the same origin only: 307 and 308 for any method, 301, 302 and 303 for GET and
    /// HEAD.
    ///
    /// Dropped midway, it closes the connection that the request was on; a server can still have
    /// executed it.
    ///
    /// # Errors
    /// If there is no head of an answer, or it sends the request to where it must not go.
    pub async fn send(&self, request: Request) -> Result<Response, HttpError> {
        self.send_with(&request, &[]).await
    }

    /// As [`Client::send`], with more headers, which win over those of the request. A map of them is
    /// made when they are sent, and not before.
    pub(crate) async fn send_with(
        &self,
        request: &Request,
        more: &[(HeaderName, HeaderValue)],
    ) -> Result<Response, HttpError> {
        request.check()?;
        let (limit, taken) = (request.first_byte, Taken::default());
        let order = Order { request, more, taken: &taken };
        // Too far away to be a time: no limit, and no timer.
        let deadline = (limit < Duration::MAX).then(|| Instant::now().checked_add(limit)).flatten();
        let Some(deadline) = deadline else { return self.follow(&order).await };
        // In a box, as all that a call does not need: every call would have to be as large.
        match Box::pin(timeout_at(deadline, self.follow(&order))).await {
            Ok(outcome) => outcome,
            Err(_) => Err(late(&taken, &request.url, limit)),
        }
    }

    async fn follow(&self, order: &Order<'_>) -> Result<Response, HttpError> {
        let (answer, request) = (self.once(order).await?, order.request);
        match redirect::next(request, answer.status, &answer.headers)? {
            None => Ok(answer.of(request)),
            Some(next) => Box::pin(self.sent_on(order, next)).await,
        }
    }

    /// The same for a request that the server sends on.
    async fn sent_on(&self, order: &Order<'_>, next: Target) -> Result<Response, HttpError> {
        let mut request = Request { url: next, ..order.request.clone() };
        for _ in 0..redirect::MOST {
            let answer = self.once(&Order { request: &request, ..*order }).await?;
            let Some(next) = redirect::next(&request, answer.status, &answer.headers)? else {
                return Ok(answer.of(&request));
            };
            request.url = next;
        }
        Err(redirect::endless(&request))
    }

    async fn once(&self, order: &Order<'_>) -> Result<Answer, HttpError> {
        if !self.is_straight(order.request.url.uri()) {
            // In a box, as all that takes more than a call: every call would have to be as large.
            return Box::pin(self.through_pool(order)).await;
        }
        let plain::Answer { status, headers, body } = self.plain.send(order).await?;
        Ok(Answer { status, headers, source: Source::Plain(body) })
    }

    /// Whether nothing stands between us and the server, neither encryption nor a proxy.
    fn is_straight(&self, to: &Uri) -> bool {
        let proxied = || self.proxies.as_ref().is_some_and(|it| it.on_the_way_to(to).is_some());
        to.scheme() == Some(&Scheme::HTTP) && !proxied()
    }

    async fn through_pool(&self, order: &Order<'_>) -> Result<Answer, HttpError> {
        let Order { request, more, taken } = *order;
        let mut outgoing = ::http::Request::new(Outgoing::new(request, taken.clone()));
        *outgoing.method_mut() = request.method.clone();
        *outgoing.uri_mut() = request.url.uri().clone();
        // The connection keeps what it is given, and a redirect needs them again.
        let headers = outgoing.headers_mut();
        *headers = request.headers.clone();
        headers.reserve(more.len() + 1);
        for (name, value) in more {
            headers.insert(name, value.clone());
        }
        self.sign(&request.url, headers);
        let connection = capture_connection(&mut outgoing);
        let answer = self.pool.request(outgoing).await;
        let answer = answer.map_err(|error| failure(&error, taken.delivery(), &request.url))?;
        let (head, body) = answer.into_parts();
        let source = Source::Hyper(body, connection);
        Ok(Answer { status: head.status, headers: head.headers, source })
    }

    fn sign(&self, to: &Target, headers: &mut HeaderMap) {
        if let Some(authorization) = to.authorization() {
            headers.entry(AUTHORIZATION).or_insert_with(|| authorization.clone());
        }
        if let Some(authorization) = self.forwarding(to.uri()) {
            headers.insert(PROXY_AUTHORIZATION, authorization);
        }
    }

    /// What a proxy that reads the request itself wants to see in it. Where there is a tunnel, it was
    /// shown when that was made, and must not go further.
    fn forwarding(&self, to: &Uri) -> Option<HeaderValue> {
        let proxies = self.proxies.as_ref().filter(|_| to.scheme() == Some(&Scheme::HTTP))?;
        proxies.on_the_way_to(to)?.authorization
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("proxies", &self.proxies).finish_non_exhaustive()
    }
}

fn late(taken: &Taken, to: &Target, limit: Duration) -> HttpError {
    let delivery = taken.delivery();
    let phase = if delivery == Delivery::NotSent { Phase::Connect } else { Phase::FirstByte };
    HttpError::late(phase, delivery, to, limit)
}

fn failure(error: &PoolError, delivery: Delivery, to: &Target) -> HttpError {
    // What the pool itself says is only in which of its steps it was.
    let cause: &(dyn Error + 'static) = error.source().unwrap_or(error);
    if let Some(dialled) = find::<DialError>(cause) {
        return HttpError::unconnected(dialled.kind, delivery, to, &dialled.reason);
    }
    HttpError::broken(delivery, to, &reasons(cause))
}

//! Headers of HTTP servers by callback: asked for each request, for the hub, an agent or one session.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock, Weak},
};

use async_trait::async_trait;
use http::{HeaderName, HeaderValue};
use stayput_core::{Agent, Record, SessionId, Sessions};
use stayput_sync::Mutex;
use stayput_upstream::{HeaderProvider, ProviderError, Scope, Server};

use super::{
    Hub,
    gateway::{SESSION_HEADER, session_key},
};
use crate::Error;

/// Headers of one request: names and values.
pub type HeaderList = Vec<(String, String)>;

type HeaderFuture = Pin<Box<dyn Future<Output = Result<HeaderList, String>> + Send>>;
type HeaderCallback = Arc<dyn Fn(HeaderRequest) -> HeaderFuture + Send + Sync>;

/// Request to an HTTP server for which headers are needed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeaderRequest {
    /// Name of the server.
    pub server: String,
    /// Session of the request. `None` when a server is asked for its lists before there is a session.
    pub session: Option<SessionId>,
    /// Name of the session, if it has one.
    pub session_name: Option<String>,
    /// Agent in whose namespace the name is; empty for the hub itself.
    pub agent: String,
    /// Whether the server has just refused the previous headers with 401. Set at most once for each request.
    pub rejected: bool,
}

/// Callback that returns the headers of each request to an HTTP server, such as a bearer token that is refreshed.
///
/// It is called before every request, so it should cache what it fetches. The headers are no part of a server's
/// identity: a new token keeps the session. An error is a reason without secrets; the request is not sent then.
///
/// ```no_run
/// use stayput::{Headers, Http, Hub};
/// # async fn token_of(_: Option<&str>) -> Result<String, String> { Ok(String::new()) }
/// # fn example() -> Result<(), stayput::Error> {
/// let hub = Hub::builder()
///     .server("notes", Http::new("https://notes.example.com/mcp"))
///     .headers(Headers::new(async |request| {
///         let token = token_of(request.session_name.as_deref()).await?;
///         Ok(vec![("authorization".to_owned(), format!("Bearer {token}"))])
///     }))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Headers(HeaderCallback);

impl Headers {
    /// Creates a callback.
    pub fn new<F>(callback: impl Fn(HeaderRequest) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<HeaderList, String>> + Send + 'static,
    {
        Self(Arc::new(move |request| Box::pin(callback(request))))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Headers(…)")
    }
}

/// Callbacks of a hub, of its agents and of its sessions.
#[derive(Debug)]
pub(crate) struct HeaderTable {
    hub: Option<Headers>,
    /// Whether requests go to a gateway, which learns the session from a header.
    names_sessions: bool,
    agents: Mutex<HashMap<Agent, Headers>>,
    sessions: Mutex<HashMap<SessionId, Headers>>,
    /// Sessions of the hub, for their names. Set when the hub is built.
    known: OnceLock<Weak<Sessions>>,
}

impl HeaderTable {
    pub(crate) fn new(hub: Option<Headers>, names_sessions: bool) -> Arc<Self> {
        let (agents, sessions) = (Mutex::default(), Mutex::default());
        Arc::new(Self { hub, names_sessions, agents, sessions, known: OnceLock::new() })
    }

    pub(crate) fn set_sessions(&self, sessions: &Arc<Sessions>) {
        let _ = self.known.set(Arc::downgrade(sessions));
    }

    pub(crate) fn remove_session(&self, session: SessionId) {
        self.sessions.lock().remove(&session);
    }

    /// Adds the callbacks to a server that is reached over HTTP.
    pub(crate) fn apply(self: &Arc<Self>, server: &Server, local_name: &str) -> Server {
        let (table, server_name) = (self.clone(), local_name.to_owned());
        server.with_provider(|inner| Arc::new(CallbackProvider { table, server_name, inner }))
    }

    fn record(&self, scope: &Scope) -> Option<Arc<Record>> {
        let known = self.known.get().and_then(Weak::upgrade)?;
        known.get_held(scope.session()?).map(|held| held.record())
    }

    /// Header that names the session at a gateway. The links of an isolated sub-agent have a session of their own.
    fn session_name(&self, scope: &Scope) -> Option<HeaderValue> {
        let is_own = matches!(scope, Scope::Session { branch: 0, .. });
        let record = self.record(scope).filter(|_| self.names_sessions && is_own)?;
        HeaderValue::try_from(session_key(&record)?).ok()
    }

    /// Describes a request of a link, and returns the callbacks for it: that of the hub first.
    fn request(
        &self,
        server: &str,
        scope: &Scope,
        rejected: bool,
    ) -> (HeaderRequest, Vec<Headers>) {
        let session = scope.session();
        let record = self.record(scope);
        let agent = record.as_ref().map_or_else(Agent::none, |record| record.agent.clone());
        let name = record.and_then(|record| record.key.as_ref().map(|key| key.value().to_owned()));
        let of_agent = self.agents.lock().get(&agent).cloned();
        let of_session = session.and_then(|id| self.sessions.lock().get(&id).cloned());
        let callbacks = [self.hub.clone(), of_agent, of_session];
        let request = HeaderRequest {
            server: server.to_owned(),
            session,
            session_name: name,
            agent: agent.as_str().to_owned(),
            rejected,
        };
        (request, callbacks.into_iter().flatten().collect())
    }
}

/// Provider of the headers of one server.
#[derive(Debug)]
struct CallbackProvider {
    table: Arc<HeaderTable>,
    server_name: String,
    /// Provider of the server's own configuration.
    inner: Option<Arc<dyn HeaderProvider>>,
}

#[async_trait]
impl HeaderProvider for CallbackProvider {
    fn identity(&self) -> Cow<'_, str> {
        // The same in each process, so that a session that is stored goes on with the headers of the next one.
        self.inner.as_ref().map_or(Cow::Borrowed("callback"), |inner| inner.identity())
    }

    fn varies_by_session(&self) -> bool {
        true
    }

    async fn headers(
        &self,
        ask: &stayput_upstream::HeaderRequest<'_>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, ProviderError> {
        let mut all = match &self.inner {
            Some(inner) => inner.headers(ask).await?,
            None => Vec::new(),
        };
        if let Some(name) = self.table.session_name(ask.scope) {
            all.push((HeaderName::from_static(SESSION_HEADER), name));
        }
        let (request, callbacks) = self.table.request(&self.server_name, ask.scope, ask.rejected);
        for Headers(callback) in callbacks {
            let found = callback(request.clone()).await.map_err(ProviderError::new)?;
            for (name, value) in found {
                let invalid = || {
                    let server = &self.server_name;
                    ProviderError::new(format!(
                        "the callback for `{server}` returned a header that is not valid in HTTP"
                    ))
                };
                let name = HeaderName::try_from(name).map_err(|_| invalid())?;
                all.push((name, HeaderValue::try_from(value).map_err(|_| invalid())?));
            }
        }
        Ok(all)
    }
}

impl Hub {
    /// Sets the headers of this agent's sessions. They override those of the hub.
    ///
    /// # Errors
    /// If the hub was built without [`Builder::headers`](crate::Builder::headers): only then each session has its own
    /// links.
    pub fn set_headers(&self, headers: Headers) -> Result<(), Error> {
        let table = self.header_table()?;
        table.agents.lock().insert(self.agent.clone(), headers);
        Ok(())
    }

    pub(crate) fn set_session_headers(
        &self,
        session: SessionId,
        headers: Headers,
    ) -> Result<(), Error> {
        self.header_table()?.sessions.lock().insert(session, headers);
        Ok(())
    }

    fn header_table(&self) -> Result<&Arc<HeaderTable>, Error> {
        self.inner.hooks.headers.as_ref().ok_or_else(|| {
            let message = "this hub was built without `headers`: give it a callback there, which may return none";
            Error::InvalidInput(message.to_owned())
        })
    }
}

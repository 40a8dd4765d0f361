//! Configuration of a server with a URL.

use std::{borrow::Cow, fmt, sync::Arc};

use stayput_http::{Proxy, Target, Trust};
use stayput_wire::{header as mcp, percent};
use url::Url;

use super::{
    error::ServerProblem,
    expand::{Expansion, Template, Variable},
    identity::HashInput,
    provider::{HeaderProvider, HeaderRequest, ProviderError},
};
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Configuration of a server with a URL.
///
/// ```
/// use stayput_upstream::Http;
///
/// let notes = Http::new("https://notes.example.com/mcp")
///     .bearer("a token")
///     .header("x-tenant", "${owner.hash}");
/// ```
///
/// The URL and header values can use `${session.hash}` and `${owner.hash}`.
#[derive(Clone)]
pub struct Http {
    url: String,
    headers: Vec<(String, String)>,
    provider: Option<Arc<dyn HeaderProvider>>,
    trust: Trust,
    proxy: Proxy,
    secrets: Vec<String>,
}

impl Http {
    /// Server at `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: Vec::new(),
            provider: None,
            trust: Trust::default(),
            proxy: Proxy::default(),
            secrets: Vec::new(),
        }
    }

    /// Adds a header to every request. The last value of a name wins. `Accept` and `Content-Type` are
    /// ignored, because the transport sets them.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends this bearer token with every request.
    #[must_use]
    pub fn bearer(self, token: impl AsRef<str>) -> Self {
        self.header(header::AUTHORIZATION.as_str(), format!("Bearer {}", token.as_ref()))
    }

    /// Adds the headers of `provider` to each request. They override headers of the same name.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn HeaderProvider>) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Sets the trusted certificate authorities.
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Sets the proxy.
    #[must_use]
    pub fn proxy(mut self, proxy: Proxy) -> Self {
        self.proxy = proxy;
        self
    }

    /// Marks a value as secret, for example a part of the URL path. It is redacted in errors of the server,
    /// like all header values.
    #[must_use]
    pub fn secret(mut self, value: impl Into<String>) -> Self {
        self.secrets.push(value.into());
        self
    }

    pub(super) fn check(&self) -> Result<HttpRecipe, ServerProblem> {
        let sample = Expansion::sample();
        let recipe = HttpRecipe {
            url: template(URL, &self.url)?,
            headers: self.check_headers()?,
            provider: self.provider.clone(),
            trust: self.trust.clone(),
            proxy: self.proxy.clone(),
            secrets: self.secrets.clone(),
        };
        recipe.endpoint(&sample)?;
        Ok(recipe)
    }

    fn check_headers(&self) -> Result<Vec<(HeaderName, Template)>, ServerProblem> {
        let mut headers: Vec<(HeaderName, Template)> = Vec::with_capacity(self.headers.len());
        for (at, (name, value)) in self.headers.iter().enumerate() {
            let invalid = |_| ServerProblem::HeaderName { number: at + 1 };
            let name = HeaderName::try_from(name.as_str()).map_err(invalid)?;
            match HeaderSource::classify(&name) {
                HeaderSource::Configuration => {}
                HeaderSource::Ignored => continue,
                HeaderSource::Transport => {
                    return Err(ServerProblem::HeaderTaken { name: name.to_string() });
                }
            }
            let value = template(&header_named(&name), value)?;
            headers.retain(|(known, _)| *known != name);
            headers.push((name, value));
        }
        Ok(headers)
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Http")
            .field("url", &origin(&self.url))
            .field("headers", &names)
            .field("trust", &self.trust)
            .finish_non_exhaustive()
    }
}

/// Scheme, host and port. Paths are omitted, because some services put a secret into the URL of each customer.
fn origin(url: &str) -> String {
    let url = Url::parse(url).ok().filter(Url::has_host);
    url.map_or_else(|| "?".to_owned(), |url| url.origin().ascii_serialization())
}

const URL: &str = "the URL";

fn header_named(name: &HeaderName) -> String {
    format!("the header '{name}'")
}

/// Parses a template whose value is sent to another machine.
fn template(what: &str, text: &str) -> Result<Template, ServerProblem> {
    let template = Template::parse(text).map_err(|error| ServerProblem::template(what, error))?;
    let folder = template.variables().find(|variable| variable.is_dir());
    match folder {
        Some(variable) => {
            Err(ServerProblem::Folder { what: what.to_owned(), variable: variable.name() })
        }
        None => Ok(template),
    }
}

/// Origin of a header's value.
#[derive(PartialEq, Eq)]
enum HeaderSource {
    /// Configuration.
    Configuration,
    /// Transport. A configured value is ignored, because many files contain one.
    Ignored,
    /// Transport. A configured value is refused, because it would break the protocol.
    Transport,
}

impl HeaderSource {
    fn classify(name: &HeaderName) -> Self {
        let ignored = [header::ACCEPT, header::CONTENT_TYPE];
        let taken = [
            header::CONNECTION,
            header::CONTENT_LENGTH,
            header::TRANSFER_ENCODING,
            header::UPGRADE,
            header::TE,
            header::TRAILER,
        ];
        let protocol = [
            mcp::MCP_SESSION_ID,
            mcp::PROTOCOL_VERSION,
            mcp::LAST_EVENT_ID,
            mcp::METHOD,
            mcp::NAME,
        ];
        if ignored.contains(name) {
            Self::Ignored
        } else if taken.contains(name)
            || protocol.contains(&name.as_str())
            || name.as_str().starts_with(mcp::PARAM_PREFIX)
        {
            Self::Transport
        } else {
            Self::Configuration
        }
    }
}

/// Validated [`Http`].
#[derive(Clone)]
pub(super) struct HttpRecipe {
    url: Template,
    headers: Vec<(HeaderName, Template)>,
    pub(super) provider: Option<Arc<dyn HeaderProvider>>,
    trust: Trust,
    proxy: Proxy,
    secrets: Vec<String>,
}

impl HttpRecipe {
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        std::iter::once(&self.url).chain(self.headers.iter().map(|(_, value)| value))
    }

    /// Values that may be secrets: headers, credentials and query of the URL, and the values marked as secret.
    pub(super) fn secrets(&self) -> Vec<String> {
        let mut secrets = self.secrets.clone();
        for value in self.headers.iter().flat_map(|(_, value)| value.secrets()) {
            // Also the token without its scheme, such as `Bearer`.
            secrets.extend(value.split_once(' ').map(|(_, token)| token.to_owned()));
            secrets.push(value);
        }
        let Ok(Endpoint { url, .. }) = self.endpoint(&Expansion::sample()) else { return secrets };
        secrets.extend(url.password().map(str::to_owned));
        secrets.extend(url.password().and_then(percent::decode_text).map(Cow::into_owned));
        let target = Target::parse(url.as_str()).ok();
        let signed = target.and_then(|target| target.secret_parts().nth(1));
        let signed = signed.and_then(|it| String::from_utf8(it).ok());
        secrets.extend(signed.and_then(|it| Some(it.split_once(' ')?.1.to_owned())));
        let query = url.query().unwrap_or_default().split('&');
        secrets.extend(query.map(|pair| pair.split_once('=').map_or(pair, |it| it.1).to_owned()));
        secrets.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
        secrets
    }

    pub(super) fn hash(&self, kind: &str, pieces: &mut HashInput) {
        pieces.add(kind).template(&self.url).list(self.headers.len());
        for (name, value) in &self.headers {
            pieces.add(name).template(value);
        }
        pieces.maybe(self.provider.as_ref().map(|provider| provider.identity().into_owned()));
        pieces.list(self.trust.ca_files.len());
        for file in &self.trust.ca_files {
            pieces.add(file.as_os_str().as_encoded_bytes());
        }
        pieces.add([u8::from(self.trust.system)]);
        match &self.proxy {
            Proxy::FromEnvironment => pieces.add("environment"),
            Proxy::None => pieces.add("direct"),
            Proxy::Url { url, except } => {
                url.secret_parts().for_each(|part| {
                    pieces.add(part);
                });
                pieces.add("proxy").add(except)
            }
        };
    }

    pub(super) fn endpoint(&self, expansion: &Expansion) -> Result<Endpoint, ServerProblem> {
        let fill = |what: &str, template: &Template| {
            let missing = |variable: Variable| ServerProblem::no_value(what, variable);
            let filled = template.fill(expansion).map_err(missing)?;
            let not_utf8 = |_| ServerProblem::NotUtf8 { what: what.to_owned() };
            filled.into_string().map_err(not_utf8)
        };
        let url = parse(&fill(URL, &self.url)?)?;
        let mut headers = HeaderMap::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            let text = fill(&header_named(name), value)?;
            let invalid = |_| ServerProblem::HeaderValue { name: name.to_string() };
            let mut value = HeaderValue::try_from(text).map_err(invalid)?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        let (provider, trust) = (self.provider.clone(), self.trust.clone());
        Ok(Endpoint { url, headers, provider, trust, proxy: self.proxy.clone() })
    }
}

fn parse(text: &str) -> Result<Url, ServerProblem> {
    let problem = |problem: &str| ServerProblem::Url { problem: problem.to_owned() };
    const NO_SCHEME: &str = "it begins neither with http:// nor with https://";
    let url = Url::parse(text).map_err(|error| match error {
        url::ParseError::RelativeUrlWithoutBase => problem(NO_SCHEME),
        error => problem(&error.to_string()),
    })?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        "http" | "https" => Err(problem("it names no host")),
        _ => Err(problem(NO_SCHEME)),
    }
}

/// URL and headers for the requests of one link.
#[derive(Clone)]
pub struct Endpoint {
    /// URL. It may contain credentials or a key: show only its origin.
    pub url: Url,
    /// Headers of every request, marked as sensitive.
    pub headers: HeaderMap,
    /// Provider of further headers.
    pub provider: Option<Arc<dyn HeaderProvider>>,
    /// Trusted certificate authorities.
    pub trust: Trust,
    /// Proxy of the connection.
    pub proxy: Proxy,
}

impl Endpoint {
    /// Returns the headers of one request (R113). With `rejected`, after a 401, a provider can fetch a new
    /// token; without a provider a retry gives the same headers.
    ///
    /// # Errors
    /// If the provider fails, or returns a header that the transport sets.
    pub async fn request_headers(
        &self,
        ask: &HeaderRequest<'_>,
    ) -> Result<HeaderMap, ProviderError> {
        let mut headers = self.headers.clone();
        let Some(provider) = &self.provider else { return Ok(headers) };
        for (name, mut value) in provider.headers(ask).await? {
            match HeaderSource::classify(&name) {
                HeaderSource::Configuration => {
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                HeaderSource::Ignored => {}
                HeaderSource::Transport => return Err(ProviderError::taken(&name)),
            }
        }
        Ok(headers)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("url", &origin(self.url.as_str()))
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("trust", &self.trust)
            .finish_non_exhaustive()
    }
}

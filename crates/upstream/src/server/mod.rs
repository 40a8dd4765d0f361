//! Configuration of one MCP server.

mod error;
mod expand;
mod http;
mod identity;
mod initialize_result;
pub(crate) mod link_key;
mod options;
mod provider;
pub(crate) mod redactor;
mod stdio;
pub(crate) mod suggest;
mod timeouts;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use stayput_wire::Era;

use self::{
    expand::{Template, Variable},
    http::HttpRecipe,
    stdio::StdioRecipe,
};
use crate::server::redactor::Redactor;
use stayput_sync::Mutex;

pub(crate) use self::expand::owner_hash;
pub use self::{
    error::{ServerError, ServerProblem},
    expand::Expansion,
    http::{Endpoint, Http},
    identity::Identity,
    initialize_result::InitializeResult,
    options::{EraChoice, Isolation, Options},
    provider::{HeaderProvider, HeaderRequest, ProviderError},
    stdio::{Launch, StderrLineSink, StderrSink, Stdio},
    timeouts::{SpareOptions, Timeouts},
};

/// Configuration of one MCP server. It is immutable (R121), and a clone is the same server: other settings
/// need a new one.
///
/// Templates are checked when the server is built. Environment, URL and headers are resolved when the first
/// link is opened (R122).
///
/// ```
/// use stayput_upstream::{Server, Stdio};
///
/// let browser = Stdio::new("npx").args(["-y", "@playwright/mcp", "--isolated"]);
/// assert_eq!(Server::new("browser", browser)?.name(), "browser");
///
/// let error = Server::new("browser", Stdio::new("x").args(["${session.dri}"])).unwrap_err();
/// assert!(error.to_string().contains("${session.dir}"));
/// # Ok::<(), stayput_upstream::ServerError>(())
/// ```
#[derive(Clone)]
pub struct Server(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    recipe: Arc<Recipe>,
    options: Options,
    /// Variables of its templates, each once.
    variables: Vec<Variable>,
    /// Era that is tried first, if the options allow both.
    preferred: Era,
    /// The same server for modern clients, see [`Server::for_client`].
    modern: OnceLock<Server>,
    configuration: OnceLock<Identity>,
    /// Configuration under which a profile for modern clients is kept.
    modern_profile: OnceLock<Identity>,
    redactor: OnceLock<Redactor>,
    log_redactor: OnceLock<Redactor>,
    /// Last `initialize` result, shared by links.
    last_initialize_result: Mutex<Option<InitializeResult>>,
}

impl Inner {
    fn new(name: &str, recipe: Arc<Recipe>, options: Options, variables: Vec<Variable>) -> Self {
        Self {
            name: name.into(),
            recipe,
            options,
            variables,
            preferred: Era::Legacy,
            modern: OnceLock::new(),
            configuration: OnceLock::new(),
            modern_profile: OnceLock::new(),
            redactor: OnceLock::new(),
            log_redactor: OnceLock::new(),
            last_initialize_result: Mutex::default(),
        }
    }
}

enum Recipe {
    Stdio(StdioRecipe),
    Http(HttpRecipe),
    Sse(HttpRecipe),
}

/// Configured transport of a server.
#[derive(Clone, Debug)]
pub enum TransportConfig {
    /// A child process.
    Stdio(Stdio),
    /// Streamable HTTP.
    Http(Http),
    /// HTTP+SSE, the transport of 2024-11-05.
    Sse(Http),
}

impl From<Stdio> for TransportConfig {
    fn from(stdio: Stdio) -> Self {
        Self::Stdio(stdio)
    }
}

impl From<Http> for TransportConfig {
    fn from(http: Http) -> Self {
        Self::Http(http)
    }
}

/// Transport of a server with the values of one link filled in.
#[derive(Clone, Debug)]
pub enum ResolvedTransport {
    /// Process to start.
    Stdio(Launch),
    /// Streamable HTTP endpoint.
    Http(Endpoint),
    /// HTTP+SSE endpoint (2024-11-05).
    Sse(Endpoint),
}

impl Server {
    /// Longest name, in bytes.
    pub const NAME_LIMIT: usize = 128;

    /// Creates a server with this name, transport and default options.
    ///
    /// # Errors
    /// If the name or the transport is invalid.
    pub fn new(name: &str, transport: impl Into<TransportConfig>) -> Result<Self, ServerError> {
        Self::with(name, transport, Options::default())
    }

    /// Creates a server with this name, transport and options.
    ///
    /// # Errors
    /// If the name or the transport is invalid, or the isolation does not allow a variable of the transport.
    pub fn with(
        name: &str,
        transport: impl Into<TransportConfig>,
        options: Options,
    ) -> Result<Self, ServerError> {
        check_name(name)?;
        let failed = |problem| ServerError::new(name, problem);
        let recipe = Recipe::check(&transport.into()).map_err(failed)?;
        let mut variables = Vec::new();
        recipe.each(&mut |template| {
            for variable in template.variables() {
                if !variables.contains(&variable) {
                    variables.push(variable);
                }
            }
        });
        variables.sort_by_key(|variable| variable.name());
        if let Some(isolation) = options.isolation
            && let Some(variable) = variables.iter().find(|variable| !isolation.knows(**variable))
        {
            let (variable, isolation) = (variable.name(), isolation.as_str());
            return Err(failed(ServerProblem::Isolation { variable, isolation }));
        }
        if options.warm.count > 0 {
            check_spares(&recipe, &variables).map_err(failed)?;
        }
        Ok(Self(Arc::new(Inner::new(name, Arc::new(recipe), options, variables))))
    }

    /// Returns the same server with this many spare processes.
    ///
    /// # Errors
    /// If the server cannot have spare processes.
    pub fn warmed(&self, count: usize) -> Result<Self, ServerError> {
        if count > 0 {
            check_spares(&self.0.recipe, &self.0.variables)
                .map_err(|problem| ServerError::new(self.name(), problem))?;
        }
        let warm = SpareOptions { count, ..self.0.options.warm };
        let options = Options { warm, ..self.0.options };
        let (recipe, variables) = (self.0.recipe.clone(), self.0.variables.clone());
        Ok(Self(Arc::new(Inner::new(self.name(), recipe, options, variables))))
    }

    /// Returns the same server with another name.
    ///
    /// # Errors
    /// If the name is invalid.
    pub fn renamed(&self, name: &str) -> Result<Self, ServerError> {
        check_name(name)?;
        Ok(Self(Arc::new(self.copy(name))))
    }

    fn copy(&self, name: &str) -> Inner {
        Inner::new(name, self.0.recipe.clone(), self.0.options, self.0.variables.clone())
    }

    /// Returns the server as a client of `era` uses it: an own profile, which is learned in that era first, and
    /// links that are opened in that era. Sessions of a child process have one link for clients of both eras,
    /// because its state is in the process; links to a URL are separate, because a modern one has no state.
    ///
    /// It is the server itself for legacy clients, and where the configuration decides the era: by
    /// [`Options::era`], or because state is to be kept behind a URL (`isolation`, `${session.…}`).
    #[must_use]
    pub fn for_client(&self, era: Era) -> &Self {
        let options = &self.0.options;
        let by_client = match (options.isolation, self.is_process()) {
            (Some(Isolation::Shared), _) => false,
            (_, true) => true,
            (isolation, false) => isolation.is_none() && !self.depends_on_session(),
        };
        if era == Era::Legacy || options.era != EraChoice::Auto || self.is_sse() || !by_client {
            return self;
        }
        let copy = || Self(Arc::new(Inner { preferred: Era::Modern, ..self.copy(self.name()) }));
        self.0.modern.get_or_init(copy)
    }

    /// Returns this server for the clients that use `other` (see [`Server::for_client`]).
    #[must_use]
    pub fn for_same_era_as(&self, other: &Self) -> &Self {
        self.for_client(other.0.preferred)
    }

    /// Era that is tried first, if the options allow both.
    #[must_use]
    pub fn preferred_era(&self) -> Era {
        self.0.preferred
    }

    /// Same server with the header provider that `make` returns for its present one. A child process gets none.
    #[must_use]
    pub fn with_provider(
        &self,
        make: impl FnOnce(Option<Arc<dyn HeaderProvider>>) -> Arc<dyn HeaderProvider>,
    ) -> Self {
        let provided = |recipe: &HttpRecipe| {
            let mut recipe = recipe.clone();
            recipe.provider = Some(make(recipe.provider.take()));
            recipe
        };
        let recipe = match &*self.0.recipe {
            Recipe::Stdio(_) => return self.clone(),
            Recipe::Http(recipe) => Recipe::Http(provided(recipe)),
            Recipe::Sse(recipe) => Recipe::Sse(provided(recipe)),
        };
        let (options, variables) = (self.0.options, self.0.variables.clone());
        Self(Arc::new(Inner::new(self.name(), Arc::new(recipe), options, variables)))
    }

    /// Name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Name, as a shared string.
    #[must_use]
    pub fn shared_name(&self) -> Arc<str> {
        self.0.name.clone()
    }

    /// Address of the allocation. It distinguishes all servers that exist now, even with equal configuration.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Returns the `initialize` result, shared with the last link that got the same.
    pub(crate) fn last_initialize_result(
        &self,
        initialize_result: InitializeResult,
    ) -> InitializeResult {
        let mut last_initialize_result = self.0.last_initialize_result.lock();
        match &*last_initialize_result {
            Some(known) if *known == initialize_result => known.clone(),
            _ => last_initialize_result.insert(initialize_result).clone(),
        }
    }

    /// Options of the server.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Whether a link to the server has a child process.
    #[must_use]
    pub fn is_process(&self) -> bool {
        matches!(*self.0.recipe, Recipe::Stdio(_))
    }

    /// Whether the server is configured for HTTP+SSE (2024-11-05).
    #[must_use]
    pub fn is_sse(&self) -> bool {
        matches!(*self.0.recipe, Recipe::Sse(_))
    }

    /// Returns the isolation of links to a server of `era`: the configured one, or the default. By default
    /// each session has its own link to a legacy server, and all share one to a modern server, as far as its
    /// templates and its header provider allow.
    #[must_use]
    pub fn isolation(&self, era: Era) -> Isolation {
        // A link that sessions share would carry the headers of one of them for all.
        if self.provider().is_some_and(|provider| provider.varies_by_session()) {
            return Isolation::PerSession;
        }
        match (self.0.options.isolation, era) {
            (Some(chosen), _) => chosen,
            (None, Era::Legacy) => Isolation::PerSession,
            (None, Era::Modern) if self.depends_on_session() => Isolation::PerSession,
            (None, Era::Modern) if self.depends_on_owner() => Isolation::PerOwner,
            (None, Era::Modern) => Isolation::Shared,
        }
    }

    /// Whether a template uses `${session.…}`, or the headers of its provider differ between sessions.
    #[must_use]
    pub fn depends_on_session(&self) -> bool {
        self.provider().is_some_and(|provider| provider.varies_by_session())
            || self.0.variables.iter().any(|variable| variable.is_of_session())
    }

    /// Whether a template uses `${owner.…}`, or a provider adds headers, which can differ per owner. A link
    /// to such a server is opened only for a known owner.
    #[must_use]
    pub fn depends_on_owner(&self) -> bool {
        self.provider().is_some() || self.0.variables.iter().any(|known| !known.is_of_session())
    }

    /// Whether its processes get the same variables as those of `other`, among those that are not part of its identity: see
    /// [`Stdio::ambient`].
    pub(crate) fn has_ambient_of(&self, other: &Self) -> bool {
        match (&*self.0.recipe, &*other.0.recipe) {
            (Recipe::Stdio(own), Recipe::Stdio(other)) => own.has_ambient_of(other),
            _ => true,
        }
    }

    /// Whether a template uses a private directory, of the session or of the owner.
    #[must_use]
    pub fn uses_private_dir(&self) -> bool {
        self.uses_session_dir() || self.uses_owner_dir()
    }

    pub(crate) fn uses_session_dir(&self) -> bool {
        self.0.variables.contains(&Variable::SessionDir)
    }

    pub(crate) fn uses_owner_dir(&self) -> bool {
        self.0.variables.contains(&Variable::OwnerDir)
    }

    /// Fills the values of `expansion` into the transport.
    ///
    /// # Errors
    /// If a template uses a variable without a value.
    pub fn resolve(&self, expansion: &Expansion) -> Result<ResolvedTransport, ServerError> {
        let resolved = match &*self.0.recipe {
            Recipe::Stdio(recipe) => recipe.launch(expansion).map(ResolvedTransport::Stdio),
            Recipe::Http(recipe) => recipe.endpoint(expansion).map(ResolvedTransport::Http),
            Recipe::Sse(recipe) => recipe.endpoint(expansion).map(ResolvedTransport::Sse),
        };
        resolved.map_err(|problem| ServerError::new(self.name(), problem))
    }

    /// Redactor of its secrets. Created on first use, for an error.
    pub(crate) fn redactor(&self) -> &Redactor {
        self.0.redactor.get_or_init(|| match &*self.0.recipe {
            Recipe::Stdio(recipe) => {
                Redactor::new(recipe.secrets().into_iter().chain(recipe.ambient_secrets(false)))
            }
            Recipe::Http(recipe) | Recipe::Sse(recipe) => Redactor::new(recipe.secrets()),
        })
    }

    /// Redactor of its secrets in the log, which is stricter.
    pub(crate) fn log_redactor(&self) -> &Redactor {
        match &*self.0.recipe {
            Recipe::Stdio(recipe) => self.0.log_redactor.get_or_init(|| {
                Redactor::new(recipe.secrets().into_iter().chain(recipe.ambient_secrets(true)))
            }),
            Recipe::Http(_) | Recipe::Sse(_) => self.redactor(),
        }
    }

    /// Same server, whose processes pass each line of their stderr to `sink`: printable, cut at
    /// [`StderrTail::LINE_LIMIT`](stayput_process::StderrTail::LINE_LIMIT), and without the configured secrets. A server behind
    /// a URL has no process.
    #[must_use]
    pub fn with_stderr_lines(&self, sink: StderrLineSink) -> Self {
        let Recipe::Stdio(recipe) = &*self.0.recipe else { return self.clone() };
        let mut recipe = recipe.clone();
        recipe.stderr_lines = Some(sink);
        let (recipe, options) = (Arc::new(Recipe::Stdio(recipe)), self.0.options);
        Self(Arc::new(Inner::new(self.name(), recipe, options, self.0.variables.clone())))
    }

    /// Receiver of the lines of its stderr, see [`Server::with_stderr_lines`].
    pub(crate) fn stderr_line_sink(&self) -> Option<&StderrLineSink> {
        match &*self.0.recipe {
            Recipe::Stdio(recipe) => recipe.stderr_lines.as_ref(),
            Recipe::Http(_) | Recipe::Sse(_) => None,
        }
    }

    /// Receiver of its stderr, see [`Stdio::stderr`].
    #[must_use]
    pub fn stderr_sink(&self) -> Option<&StderrSink> {
        match &*self.0.recipe {
            Recipe::Stdio(recipe) => recipe.stderr.as_ref(),
            Recipe::Http(_) | Recipe::Sse(_) => None,
        }
    }

    /// Whether both are clones of the same server. Servers that are equal but built separately differ.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn provider(&self) -> Option<&Arc<dyn HeaderProvider>> {
        match &*self.0.recipe {
            Recipe::Stdio(_) => None,
            Recipe::Http(recipe) | Recipe::Sse(recipe) => recipe.provider.as_ref(),
        }
    }
}

/// Checks that a process of the server can be started before its session is known. Only a directory can be made
/// for a session that does not exist yet.
fn check_spares(recipe: &Recipe, variables: &[Variable]) -> Result<(), ServerProblem> {
    if !matches!(recipe, Recipe::Stdio(_)) {
        return Err(ServerProblem::WarmUrl);
    }
    match variables.iter().find(|variable| **variable != Variable::SessionDir) {
        Some(variable) => Err(ServerProblem::WarmVariable { variable: variable.name() }),
        None => Ok(()),
    }
}

fn check_name(name: &str) -> Result<(), ServerError> {
    if name.is_empty() || name.len() > Server::NAME_LIMIT || name.contains(char::is_control) {
        return Err(ServerError::new(name, ServerProblem::Name));
    }
    Ok(())
}

impl Recipe {
    fn check(transport: &TransportConfig) -> Result<Self, ServerProblem> {
        match transport {
            TransportConfig::Stdio(stdio) => stdio.check().map(Self::Stdio),
            TransportConfig::Http(http) => http.check().map(Self::Http),
            TransportConfig::Sse(http) => http.check().map(Self::Sse),
        }
    }

    fn each(&self, with: &mut dyn FnMut(&Template)) {
        match self {
            Self::Stdio(recipe) => recipe.templates().for_each(with),
            Self::Http(recipe) | Self::Sse(recipe) => recipe.templates().for_each(with),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match *self.0.recipe {
            Recipe::Stdio(_) => "stdio",
            Recipe::Http(_) => "http",
            Recipe::Sse(_) => "sse",
        };
        f.debug_struct("Server")
            .field("name", &self.0.name)
            .field("transport", &kind)
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

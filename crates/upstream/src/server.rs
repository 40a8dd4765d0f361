//! What is configured of one MCP server.

mod error;
mod expand;
mod http;
mod identity;
mod provider;
mod stdio;
mod timeouts;

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock},
};

use stayput_wire::Era;

use crate::{Greeting, lock::lock, process::Grace, redactor::Redactor};

pub(crate) use self::expand::owner_hash;
pub use self::{
    error::{ServerError, ServerProblem},
    expand::Expansion,
    http::{Endpoint, Http},
    identity::Identity,
    provider::{HeaderAsk, HeaderProvider, ProviderError},
    stdio::{Launch, Stdio},
    timeouts::{Timeouts, Warm},
};
use self::{
    expand::{Template, Variable},
    http::HttpRecipe,
    identity::Pieces,
    stdio::StdioRecipe,
};

/// One configured MCP server. It never changes after construction (R121), and a clone is the same
/// server: other settings make another one.
///
/// Nothing is looked up when it is built. Environment, URL and headers are put together when the
/// first link is opened (R122), and what is wrong with them as they are written is said here.
///
/// ```
/// use stayput_upstream::{Server, Stdio};
///
/// let browser = Stdio::new("npx").args(["-y", "@playwright/mcp"]);
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
    /// Which names its templates use, each once.
    variables: Vec<Variable>,
    configuration: OnceLock<Identity>,
    redactor: OnceLock<Redactor>,
    /// What it said of itself last, for links to share.
    heard: Mutex<Option<Greeting>>,
}

enum Recipe {
    Stdio(StdioRecipe),
    Http(HttpRecipe),
    Sse(HttpRecipe),
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum Transport {
    /// A child process.
    Stdio(Stdio),
    /// Streamable HTTP.
    Http(Http),
    /// HTTP with a stream of events beside it, the transport of 2024-11-05.
    Sse(Http),
}

impl From<Stdio> for Transport {
    fn from(stdio: Stdio) -> Self {
        Self::Stdio(stdio)
    }
}

impl From<Http> for Transport {
    fn from(http: Http) -> Self {
        Self::Http(http)
    }
}

/// What can be chosen for a server beside how it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which era is spoken.
    pub era: EraChoice,
    /// Who shares a link. By default the era decides, see [`Server::isolation`].
    pub isolation: Option<Isolation>,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// How long its process is waited for at the end.
    pub grace: Grace,
    /// Links that are opened in advance.
    pub warm: Warm,
    /// Whether a remote session is deleted when ours ends. Defaults to yes: it would be kept by a
    /// server that nobody will ask for it again.
    pub delete_on_end: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            era: EraChoice::Auto,
            isolation: None,
            timeouts: Timeouts::default(),
            grace: Grace::default(),
            warm: Warm::default(),
            delete_on_end: true,
        }
    }
}

impl Options {
    /// Which eras are tried, and which of them first: all that decides how a server is spoken to.
    fn era_order(&self) -> &'static str {
        match (self.era, self.isolation) {
            (EraChoice::Legacy, _) => "legacy",
            (EraChoice::Modern, _) => "modern",
            (EraChoice::Auto, Some(Isolation::Shared)) => "modern, then legacy",
            (EraChoice::Auto, _) => "legacy, then modern",
        }
    }
}

/// Which era is spoken with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// What the server speaks, asked once.
    #[default]
    Auto,
    /// Legacy, without asking.
    Legacy,
    /// Modern, without asking.
    Modern,
}

/// Who shares a link to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Nobody: each session has its own process or its own remote session.
    PerSession,
    /// All sessions of one owner.
    PerOwner,
    /// All sessions of everybody.
    Shared,
}

impl Isolation {
    /// The name in configuration files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PerSession => "per-session",
            Self::PerOwner => "per-owner",
            Self::Shared => "shared",
        }
    }

    /// Whether a link of this kind has a value for `variable`.
    fn knows(self, variable: Variable) -> bool {
        match self {
            Self::PerSession => true,
            Self::PerOwner => !variable.is_of_session(),
            Self::Shared => false,
        }
    }
}

/// A server's transport with all values of one link in it.
#[derive(Clone, Debug)]
pub enum Resolved {
    /// What to start.
    Stdio(Launch),
    /// Where to send, by Streamable HTTP.
    Http(Endpoint),
    /// Where to send, by the transport of 2024-11-05.
    Sse(Endpoint),
}

impl Server {
    /// The most bytes a name may have.
    pub const NAME_LIMIT: usize = 128;

    /// The server that is called `name` and reached by `transport`, with default options.
    ///
    /// # Errors
    /// If the name or anything of the transport cannot be used.
    pub fn new(name: &str, transport: impl Into<Transport>) -> Result<Self, ServerError> {
        Self::with(name, transport, Options::default())
    }

    /// The server that is called `name` and reached by `transport`, with these options.
    ///
    /// # Errors
    /// If the name or anything of the transport cannot be used, or the isolation does not go with
    /// the names that the transport uses.
    pub fn with(
        name: &str,
        transport: impl Into<Transport>,
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
        Ok(Self(Arc::new(Inner {
            name: name.into(),
            recipe: Arc::new(recipe),
            options,
            variables,
            configuration: OnceLock::new(),
            redactor: OnceLock::new(),
            heard: Mutex::default(),
        })))
    }

    /// The same server by another name.
    ///
    /// # Errors
    /// If the name cannot be used.
    pub fn renamed(&self, name: &str) -> Result<Self, ServerError> {
        check_name(name)?;
        Ok(Self(Arc::new(Inner {
            name: name.into(),
            recipe: self.0.recipe.clone(),
            options: self.0.options,
            variables: self.0.variables.clone(),
            configuration: OnceLock::new(),
            redactor: OnceLock::new(),
            heard: Mutex::default(),
        })))
    }

    /// The name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its name, for whoever keeps it.
    #[must_use]
    pub fn shared_name(&self) -> Arc<str> {
        self.0.name.clone()
    }

    /// What tells it from every other server that there is now, be it configured alike.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// The greeting, shared with the last link that heard the same.
    pub(crate) fn heard(&self, greeting: Greeting) -> Greeting {
        let mut heard = lock(&self.0.heard);
        match &*heard {
            Some(known) if *known == greeting => known.clone(),
            _ => heard.insert(greeting).clone(),
        }
    }

    /// What was chosen for it.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Whether a link to it is a child process.
    #[must_use]
    pub fn is_process(&self) -> bool {
        matches!(*self.0.recipe, Recipe::Stdio(_))
    }

    /// Whether it is only reached by the transport of 2024-11-05.
    #[must_use]
    pub fn is_sse(&self) -> bool {
        matches!(*self.0.recipe, Recipe::Sse(_))
    }

    /// Who shares a link when the server is of `era`: what was chosen, else a legacy server's links
    /// belong to one session each and a modern one's to all, as far as its templates and its provider
    /// allow it.
    #[must_use]
    pub fn isolation(&self, era: Era) -> Isolation {
        match (self.0.options.isolation, era) {
            (Some(chosen), _) => chosen,
            (None, Era::Legacy) => Isolation::PerSession,
            (None, Era::Modern) if self.depends_on_session() => Isolation::PerSession,
            (None, Era::Modern) if self.depends_on_owner() => Isolation::PerOwner,
            (None, Era::Modern) => Isolation::Shared,
        }
    }

    /// Whether a template uses `${session.…}`. No link to such a server can be opened in advance.
    #[must_use]
    pub fn depends_on_session(&self) -> bool {
        self.0.variables.iter().any(|variable| variable.is_of_session())
    }

    /// Whether a template uses `${owner.…}`, or a provider gives headers, which can differ from owner
    /// to owner. No link to such a server can be opened before its owner is known.
    #[must_use]
    pub fn depends_on_owner(&self) -> bool {
        self.provider().is_some() || self.0.variables.iter().any(|known| !known.is_of_session())
    }

    pub(crate) fn uses_session_dir(&self) -> bool {
        self.0.variables.contains(&Variable::SessionDir)
    }

    pub(crate) fn uses_owner_dir(&self) -> bool {
        self.0.variables.contains(&Variable::OwnerDir)
    }

    /// What to start or where to send, for the link that `expansion` belongs to.
    ///
    /// # Errors
    /// If a template uses a name that has no value there.
    pub fn resolve(&self, expansion: &Expansion) -> Result<Resolved, ServerError> {
        let resolved = match &*self.0.recipe {
            Recipe::Stdio(recipe) => recipe.launch(expansion).map(Resolved::Stdio),
            Recipe::Http(recipe) => recipe.endpoint(expansion).map(Resolved::Http),
            Recipe::Sse(recipe) => recipe.endpoint(expansion).map(Resolved::Sse),
        };
        resolved.map_err(|problem| ServerError::new(self.name(), problem))
    }

    /// Hides its secrets in what it writes. Made when it is needed first, which is for an error.
    pub(crate) fn redactor(&self) -> &Redactor {
        self.0.redactor.get_or_init(|| match &*self.0.recipe {
            Recipe::Stdio(recipe) => Redactor::new(recipe.secrets()),
            Recipe::Http(recipe) | Recipe::Sse(recipe) => Redactor::new(recipe.secrets()),
        })
    }

    /// Whether one is a copy of the other: nothing of them differs, whatever can be configured.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The identity of the configuration alone, before any value is filled in. Beside the scope of a
    /// link it says all, because the scope decides every value; it is made once.
    #[must_use]
    pub fn configuration(&self) -> Identity {
        *self.0.configuration.get_or_init(|| {
            let mut pieces = Pieces::default();
            match &*self.0.recipe {
                Recipe::Stdio(recipe) => recipe.hash(&mut pieces),
                Recipe::Http(recipe) => recipe.hash("http", &mut pieces),
                Recipe::Sse(recipe) => recipe.hash("sse", &mut pieces),
            }
            // A link of the other era is another link, and so is what is known of the server.
            pieces.add(self.0.options.era_order());
            pieces.identity("server")
        })
    }

    /// The identity of a link: two links with the same one are interchangeable to the server. It
    /// covers the transport with all values, credentials and environment included (R017, E23).
    #[must_use]
    pub fn identity(&self, expansion: &Expansion) -> Identity {
        self.identity_over(expansion, |_| true)
    }

    /// The identity of what is known of the server: as [`Server::identity`], but for what differs
    /// from session to session. A folder for each does not make a server anew; another owner's
    /// credentials may.
    #[must_use]
    pub fn profile_identity(&self, expansion: &Expansion) -> Identity {
        self.identity_over(expansion, |variable| !variable.is_of_session())
    }

    fn identity_over(&self, expansion: &Expansion, counts: fn(Variable) -> bool) -> Identity {
        let mut used = self.0.variables.clone();
        if self.provider().is_some() && !used.contains(&Variable::OwnerHash) {
            used.push(Variable::OwnerHash);
        }
        used.retain(|variable| counts(*variable));
        if used.is_empty() {
            return self.configuration();
        }
        let mut pieces = Pieces::default();
        pieces.add(self.configuration().as_bytes());
        for variable in used {
            let value = expansion.value(variable);
            pieces.add(variable.name()).maybe(value.map(|value| value.as_encoded_bytes()));
        }
        pieces.identity("link")
    }

    fn provider(&self) -> Option<&Arc<dyn HeaderProvider>> {
        match &*self.0.recipe {
            Recipe::Stdio(_) => None,
            Recipe::Http(recipe) | Recipe::Sse(recipe) => recipe.provider.as_ref(),
        }
    }
}

fn check_name(name: &str) -> Result<(), ServerError> {
    if name.is_empty() || name.len() > Server::NAME_LIMIT || name.contains(char::is_control) {
        return Err(ServerError::new(name, ServerProblem::Name));
    }
    Ok(())
}

impl Recipe {
    fn check(transport: &Transport) -> Result<Self, ServerProblem> {
        match transport {
            Transport::Stdio(stdio) => stdio.check().map(Self::Stdio),
            Transport::Http(http) => http.check().map(Self::Http),
            Transport::Sse(http) => http.check().map(Self::Sse),
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

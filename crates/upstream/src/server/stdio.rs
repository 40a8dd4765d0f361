//! Configuration of a server that is a child process.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use super::{
    error::ServerProblem,
    expand::{Expansion, Template, Variable},
    identity::HashInput,
};

/// Configuration of a server that communicates over stdin and stdout.
///
/// ```
/// use stayput_upstream::Stdio;
///
/// let browser = Stdio::new("npx")
///     .args(["-y", "@playwright/mcp", "--user-data-dir=${session.dir}/profile"])
///     .env("DEBUG", "pw:mcp")
///     .inherit(["DISPLAY"]);
/// ```
///
/// Command, arguments, environment values and working directory can use `${session.dir}`, `${session.hash}`,
/// `${owner.dir}` and `${owner.hash}`.
#[derive(Clone)]
pub struct Stdio {
    command: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    inherit: Vec<String>,
    cwd: Option<PathBuf>,
    secrets: Vec<String>,
    ambient: Arc<[(OsString, OsString)]>,
    stderr: Option<StderrSink>,
}

/// Receiver of the bytes that a child writes to stderr. It must not block.
pub type StderrSink = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Receiver of the lines that the processes of a server write to stderr, see
/// [`Server::with_stderr_lines`](super::Server::with_stderr_lines). It must not block.
pub type StderrLineSink = Arc<dyn Fn(&str) + Send + Sync>;

/// Variables by which Stayput finds its own children again.
const OWN_VARIABLES: [&str; 2] = ["STAYPUT_LINK", "STAYPUT_WARDEN"];

impl Stdio {
    /// Variables that a child inherits by default: paths, user and locale. The `XDG` ones name the user's
    /// cache and settings directories; without them `npx` and `uvx` would fill a second cache. None of them
    /// holds a secret.
    pub const INHERITED: &'static [&'static str] = &[
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LC_ALL",
        "TZ",
        "TMPDIR",
        "TERM",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
        "XDG_STATE_HOME",
    ];

    /// Program to start. It is looked up on the child's `PATH` if it has no slash.
    #[must_use]
    pub fn new(command: impl Into<String>) -> Self {
        let inherit = Self::INHERITED.iter().map(|name| (*name).to_owned()).collect();
        Self {
            command: command.into(),
            args: Vec::new(),
            env: Vec::new(),
            inherit,
            cwd: None,
            secrets: Vec::new(),
            ambient: Arc::default(),
            stderr: None,
        }
    }

    /// Appends arguments.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable; it overrides an inherited one. The last value of a name wins.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Inherits these variables in addition to [`Stdio::INHERITED`]. They are read once, at first use, so
    /// that all links of a server start with the same values.
    #[must_use]
    pub fn inherit<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.inherit.extend(names.into_iter().map(Into::into));
        self
    }

    /// Inherits no variables; [`Stdio::inherit`] can add some again.
    #[must_use]
    pub fn inherit_nothing(mut self) -> Self {
        self.inherit.clear();
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn cwd(mut self, folder: impl AsRef<Path>) -> Self {
        self.cwd = Some(folder.as_ref().to_owned());
        self
    }

    /// Sets the environment that the child has without [`Stdio::env`], in place of the inherited variables. It is not
    /// part of the server's identity: two links with another one are interchangeable, and a running process keeps the
    /// one that it was started with. All of its values are redacted in the log.
    #[must_use]
    pub fn ambient(mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let own = |name: &OsStr| OWN_VARIABLES.iter().any(|own| name == OsStr::new(own));
        self.inherit.clear();
        self.ambient = variables.into_iter().filter(|(name, _)| !own(name)).collect();
        self
    }

    /// Passes everything that a child writes to stderr to `sink`, unchanged.
    #[must_use]
    pub fn stderr(mut self, sink: StderrSink) -> Self {
        self.stderr = Some(sink);
        self
    }

    /// Marks a value as secret, for example an argument. It is redacted in the server's log and errors, like
    /// all values of [`Stdio::env`].
    #[must_use]
    pub fn secret(mut self, value: impl Into<String>) -> Self {
        self.secrets.push(value.into());
        self
    }

    pub(super) fn check(&self) -> Result<StdioRecipe, ServerProblem> {
        if self.command.is_empty() {
            return Err(ServerProblem::Empty { what: COMMAND.to_owned() });
        }
        let args = self.args.iter().enumerate();
        let env = self.env.iter().enumerate();
        let cwd = self.cwd.as_deref().map(|cwd| {
            let not_utf8 = || ServerProblem::NotUtf8 { what: CWD.to_owned() };
            template(CWD, cwd.to_str().ok_or_else(not_utf8)?)
        });
        let mut inherit = self.inherit.clone();
        inherit.sort();
        inherit.dedup();
        for (at, name) in inherit.iter().enumerate() {
            check_name(at, name)?;
        }
        Ok(StdioRecipe {
            command: template(COMMAND, &self.command)?,
            args: args.map(|(at, text)| template(&argument(at), text)).collect::<Result<_, _>>()?,
            env: env
                .map(|(at, (name, value))| {
                    check_name(at, name)?;
                    Ok((name.clone(), template(&variable(name), value)?))
                })
                .collect::<Result<_, _>>()?,
            inherit,
            cwd: cwd.transpose()?,
            secrets: self.secrets.clone(),
            ambient: self.ambient.clone(),
            stderr: self.stderr.clone(),
            stderr_lines: None,
            inherited: OnceLock::new(),
        })
    }
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        // Arguments are only counted: they can contain tokens, as environment values can.
        f.debug_struct("Stdio")
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &names)
            .finish_non_exhaustive()
    }
}

const COMMAND: &str = "the command";
const CWD: &str = "the working folder";

fn argument(at: usize) -> String {
    format!("argument {}", at + 1)
}

fn variable(name: &str) -> String {
    format!("the environment variable '{name}'")
}

fn template(what: &str, text: &str) -> Result<Template, ServerProblem> {
    if text.contains('\0') {
        return Err(ServerProblem::Nul { what: what.to_owned() });
    }
    Template::parse(text).map_err(|error| ServerProblem::template(what, error))
}

fn check_name(at: usize, name: &str) -> Result<(), ServerProblem> {
    // An invalid name may be `NAME=secret`, so that the error shows its position instead.
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(ServerProblem::EnvName { number: at + 1 });
    }
    if OWN_VARIABLES.contains(&name) {
        return Err(ServerProblem::EnvTaken { name: name.to_owned() });
    }
    Ok(())
}

/// Returns whether the name of a variable says that its value is a secret.
fn names_a_secret(name: &str) -> bool {
    const WORDS: [&str; 9] =
        ["KEY", "TOKEN", "SECRET", "PASS", "AUTH", "CREDENTIAL", "COOKIE", "PRIVATE", "DSN"];
    let name = name.to_ascii_uppercase();
    WORDS.iter().any(|word| name.contains(word))
}

/// Validated [`Stdio`].
#[derive(Clone)]
pub(super) struct StdioRecipe {
    command: Template,
    args: Vec<Template>,
    env: Vec<(String, Template)>,
    inherit: Vec<String>,
    cwd: Option<Template>,
    secrets: Vec<String>,
    /// Not part of the identity, see [`Stdio::ambient`].
    ambient: Arc<[(OsString, OsString)]>,
    pub(super) stderr: Option<StderrSink>,
    pub(super) stderr_lines: Option<StderrLineSink>,
    /// Read at first use, not at construction (R122), and only once: the values are part of the identity by
    /// which a link is found.
    inherited: OnceLock<Vec<(OsString, OsString)>>,
}

impl StdioRecipe {
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        let env = self.env.iter().map(|(_, value)| value);
        std::iter::once(&self.command).chain(&self.args).chain(env).chain(&self.cwd)
    }

    fn inherited(&self) -> &[(OsString, OsString)] {
        self.inherited.get_or_init(|| {
            let value = |name: &String| Some((name.into(), std::env::var_os(name)?));
            let function = |value: &OsStr| value.as_encoded_bytes().starts_with(b"()");
            // Skip shell functions: a shell as the child would run them.
            self.inherit.iter().filter_map(value).filter(|(_, value)| !function(value)).collect()
        })
    }

    /// Values that may be secrets: variables other than the default ones, and the values marked as secret.
    pub(super) fn secrets(&self) -> Vec<String> {
        let usual = |name: &OsStr| Stdio::INHERITED.iter().any(|it| name == OsStr::new(it));
        let own = self.env.iter().filter(|(name, _)| !usual(OsStr::new(name)));
        let inherited = self.inherited().iter().filter(|(name, _)| !usual(name));
        let inherited = inherited.filter_map(|(_, value)| Some(value.to_str()?.to_owned()));
        let own = own.flat_map(|(_, value)| value.secrets());
        own.chain(inherited).chain(self.secrets.iter().cloned()).collect()
    }

    /// Whether the ambient environment is that of `other`.
    pub(super) fn has_ambient_of(&self, other: &Self) -> bool {
        self.ambient == other.ambient
    }

    /// Values of the ambient environment that may be secrets. An answer of the server hides only those whose name says
    /// so, because the environment of a desktop has many plain words; the log hides all of them.
    pub(super) fn ambient_secrets(&self, in_log: bool) -> impl Iterator<Item = String> {
        let usual = |name: &OsStr| Stdio::INHERITED.iter().any(|it| name == OsStr::new(it));
        let hidden = move |(name, _): &&(OsString, OsString)| match in_log {
            true => !usual(name),
            false => names_a_secret(&name.to_string_lossy()),
        };
        let values = self.ambient.iter().filter(hidden);
        values.filter_map(|(_, value)| Some(value.to_str()?.to_owned()))
    }

    pub(super) fn hash(&self, pieces: &mut HashInput) {
        self.hash_written(pieces);
        pieces.list(self.inherited().len());
        for (name, value) in self.inherited() {
            pieces.add(name.as_encoded_bytes()).add(value.as_encoded_bytes());
        }
    }

    /// Adds what the configuration says, without the inherited variables.
    pub(super) fn hash_written(&self, pieces: &mut HashInput) {
        pieces.add("stdio").template(&self.command).list(self.args.len());
        for arg in &self.args {
            pieces.template(arg);
        }
        pieces.list(self.env.len());
        for (name, value) in &self.env {
            pieces.add(name).template(value);
        }
        match &self.cwd {
            Some(cwd) => pieces.add("cwd").template(cwd),
            None => pieces.add("here"),
        };
    }

    pub(super) fn launch(&self, expansion: &Expansion) -> Result<Launch, ServerProblem> {
        let fill = |what: &str, template: &Template| {
            let missing = |variable: Variable| ServerProblem::no_value(what, variable);
            template.fill(expansion).map_err(missing)
        };
        let mut env = self.inherited().to_vec();
        env.extend(self.ambient.iter().cloned());
        for (name, value) in &self.env {
            let value = fill(&variable(name), value)?;
            env.retain(|(known, _)| known != OsStr::new(name));
            env.push((name.into(), value));
        }
        let args = self.args.iter().enumerate();
        Ok(Launch {
            command: fill(COMMAND, &self.command)?,
            args: args.map(|(at, arg)| fill(&argument(at), arg)).collect::<Result<_, _>>()?,
            env,
            cwd: self.cwd.as_ref().map(|cwd| fill(CWD, cwd)).transpose()?.map(PathBuf::from),
        })
    }
}

/// Process to start for one link.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// Program.
    pub command: OsString,
    /// Arguments, without the program.
    pub args: Vec<OsString>,
    /// Whole environment, each name once. Nothing else is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory. `None` uses that of this process.
    pub cwd: Option<PathBuf>,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&OsString> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Launch")
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &names)
            .field("cwd", &self.cwd)
            .finish()
    }
}

//! A server that is a child process.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use super::{
    error::ServerProblem,
    expand::{Expansion, Template, Variable},
    identity::Pieces,
};

/// How a server is started that speaks over its standard input and output.
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
/// The command, the arguments, the values of the environment and the working folder can use
/// `${session.dir}`, `${session.hash}`, `${owner.dir}` and `${owner.hash}`.
#[derive(Clone)]
pub struct Stdio {
    command: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    inherit: Vec<String>,
    cwd: Option<PathBuf>,
    secrets: Vec<String>,
}

impl Stdio {
    /// What a child gets of our own environment unless told otherwise: where programs, files and
    /// people are, and how they write. The `XDG` ones say where this user keeps caches and settings;
    /// without them `npx` and `uvx` would fill a second cache. Nothing here holds a secret.
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

    /// The program `command`, looked up on the child's `PATH` if it has no slash.
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
        }
    }

    /// With these arguments behind those it has.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// With this environment variable, whatever our own environment says. Of two, the last holds.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// With these variables of our own environment too, beside [`Stdio::INHERITED`]. They are read
    /// once, at the first call, so that all links of a server are started alike.
    #[must_use]
    pub fn inherit<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.inherit.extend(names.into_iter().map(Into::into));
        self
    }

    /// With nothing of our own environment; [`Stdio::inherit`] can add some of it again.
    #[must_use]
    pub fn inherit_nothing(mut self) -> Self {
        self.inherit.clear();
        self
    }

    /// Started in this folder, not in ours.
    #[must_use]
    pub fn cwd(mut self, folder: impl AsRef<Path>) -> Self {
        self.cwd = Some(folder.as_ref().to_owned());
        self
    }

    /// With this value hidden in what the server writes to its log and in its errors, as all values of
    /// [`Stdio::env`] are: for one that stands in an argument.
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
            inherited: OnceLock::new(),
        })
    }
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        // Arguments can hold tokens as well as values of the environment can.
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
    // What is mistyped as a name may be `NAME=secret`: its number tells which one it is.
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(ServerProblem::EnvName { number: at + 1 });
    }
    if name == "STAYPUT_LINK" || name == "STAYPUT_WARDEN" {
        return Err(ServerProblem::EnvTaken { name: name.to_owned() });
    }
    Ok(())
}

/// A checked [`Stdio`].
pub(super) struct StdioRecipe {
    command: Template,
    args: Vec<Template>,
    env: Vec<(String, Template)>,
    inherit: Vec<String>,
    cwd: Option<Template>,
    secrets: Vec<String>,
    /// Read at the first use, never at construction (R122), and never again: a link that is looked
    /// for must be the one that was opened.
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
            // A value that is a shell function would be run by a shell that is the child.
            self.inherit.iter().filter_map(value).filter(|(_, value)| !function(value)).collect()
        })
    }

    /// The values that may be secrets: its variables but for those that every child gets, and what was
    /// named as one.
    pub(super) fn secrets(&self) -> Vec<String> {
        let usual = |name: &OsStr| Stdio::INHERITED.iter().any(|it| name == OsStr::new(it));
        let own = self.env.iter().filter(|(name, _)| !usual(OsStr::new(name)));
        let inherited = self.inherited().iter().filter(|(name, _)| !usual(name));
        let inherited = inherited.filter_map(|(_, value)| Some(value.to_str()?.to_owned()));
        let own = own.flat_map(|(_, value)| value.secrets());
        own.chain(inherited).chain(self.secrets.iter().cloned()).collect()
    }

    pub(super) fn hash(&self, pieces: &mut Pieces) {
        pieces.add("stdio").template(&self.command).list(self.args.len());
        for arg in &self.args {
            pieces.template(arg);
        }
        pieces.list(self.env.len());
        for (name, value) in &self.env {
            pieces.add(name).template(value);
        }
        pieces.list(self.inherited().len());
        for (name, value) in self.inherited() {
            pieces.add(name.as_encoded_bytes()).add(value.as_encoded_bytes());
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

/// What is started for one link.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub command: OsString,
    /// Its arguments, without the program.
    pub args: Vec<OsString>,
    /// The whole environment, each name once; nothing is inherited behind it.
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts, if not where we are.
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

//! Servers of `stayput stdio`, from a file or the command line, with the environment of the process. The definition is
//! sent to the process that holds the sessions.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, json};
use stayput_stores::Address;
use stayput_upstream::StderrSink;

use crate::config::{Config, ConfigError, Environment, server_name, target::Target};

/// Origin of a server behind `--`, in place of a file name.
const COMMAND_LINE: &str = "the command line";

/// Configuration with its environment. It holds secrets, so it has no `Debug`.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Definition {
    /// Text of the configuration. `None` to use the servers of the holder.
    text: Option<String>,
    /// File of the configuration.
    origin: PathBuf,
    /// Default working directory of child processes.
    cwd: PathBuf,
    variables: BTreeMap<String, String>,
    /// Whether servers get all of these variables, not only the usual ones.
    whole: bool,
    /// Store of the sessions, if it is not set by the file.
    store: Option<String>,
}

/// Server from the command line.
pub(crate) struct CommandServer<'a> {
    /// Name of the server. Defaults to the name of its package or program.
    pub(crate) name: Option<&'a str>,
    pub(crate) command: &'a str,
    pub(crate) args: &'a [String],
    /// Variables that are set for the server, and are part of its identity.
    pub(crate) env: &'a [EnvArgument],
}

/// Argument of `--env`: a name with a value, or the name of a variable of this process.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct EnvArgument {
    name: String,
    value: Option<String>,
}

impl EnvArgument {
    /// Whether this sets the variable `name` to a value of the command line.
    pub(crate) fn sets(&self, name: &str) -> bool {
        self.name == name && self.value.is_some()
    }
}

impl FromStr for EnvArgument {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
        if name.is_empty() || !name.bytes().all(word) || name.as_bytes()[0].is_ascii_digit() {
            return Err("write NAME=VALUE, or the name of a variable that is set");
        }
        if value.is_none() && std::env::var(name).is_err() {
            return Err("the variable is not set here, or is no text; set it, or write NAME=VALUE");
        }
        Ok(Self { name: name.to_owned(), value })
    }
}

/// Shows no value, which may be a secret.
impl fmt::Debug for EnvArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EnvArgument({})", self.name)
    }
}

impl Definition {
    /// Creates a definition from `text`, with the environment of this process.
    pub(crate) fn new(text: Option<String>, origin: &Path, cwd: &Path) -> Self {
        let (origin, cwd) = (cwd.join(origin), cwd.to_owned());
        // A variable that is not UTF-8 cannot be used in a configuration.
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self { text, origin, cwd, variables: variables.collect(), whole: false, store: None }
    }

    /// Creates a definition with one server from the command line.
    pub(crate) fn commanded(given: &CommandServer<'_>, cwd: &Path) -> Self {
        let CommandServer { command, args, env, .. } = *given;
        let args: Vec<String> = args.iter().map(|arg| template(arg)).collect();
        let origin = PathBuf::from(COMMAND_LINE);
        let definition = Self { origin, whole: true, ..Self::new(None, Path::new(""), cwd) };
        let env = env.iter().filter_map(|EnvArgument { name, value }| match value {
            Some(value) => Some((name.clone(), json!(template(value)))),
            None if definition.variables.contains_key(name) => {
                Some((name.clone(), json!(format!("${{env:{name}}}"))))
            }
            None => None,
        });
        let env: Map<_, _> = env.collect();
        // Its environment is that of this process: a link for all windows would mix them.
        let stayput = json!({ "isolation": "per-session" });
        let command = template(command);
        let entry = json!({ "command": command, "args": args, "env": env, "stayput": stayput });
        let name = given
            .name
            .map_or_else(|| server_name::derive(given.command, given.args), str::to_owned);
        let text = json!({ "mcpServers": { name: entry } }).to_string();
        Self { text: Some(text), ..definition }
    }

    /// Sets the store. A relative path starts at the working directory.
    pub(crate) fn on(self, store: &str) -> Self {
        let store = match store.parse() {
            Ok(Address::Sqlite(path)) => {
                self.cwd.join(path).to_str().map(|path| format!("sqlite:{path}"))
            }
            _ => None,
        }
        .unwrap_or_else(|| store.to_owned());
        Self { store: Some(store), ..self }
    }

    /// Parses the configuration.
    ///
    /// # Errors
    /// [`ConfigError`] names the place and the problem.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        self.config_with(None)
    }

    /// Parses the configuration. `stderr` gets the stderr of the servers' processes.
    ///
    /// # Errors
    /// Same as [`Definition::config`].
    pub(crate) fn config_with(&self, stderr: Option<StderrSink>) -> Result<Config, ConfigError> {
        let mut environment = Environment::from_client(self.variables.clone(), self.cwd.clone());
        if self.whole {
            environment = environment.with_ambient(self.variables.clone());
        }
        if let Some(sink) = stderr {
            environment = environment.with_stderr(sink);
        }
        let text = self.text.as_deref().unwrap_or(r#"{"mcpServers": {}}"#);
        let mut config = Config::parse(text, &self.origin, environment)?.require_usable()?;
        if let Some(store) = &self.store {
            config.store.clone_from(store);
        }
        if !self.has_servers() {
            config.warnings.clear();
        }
        Ok(config)
    }

    /// Whether it contains servers.
    pub(crate) fn has_servers(&self) -> bool {
        self.text.is_some()
    }
}

/// Converts an argument of the command line to a template. The shell has expanded its variables, so that only the
/// values of Stayput are expanded: names with a dot, such as `${session.dir}`.
fn template(argument: &str) -> String {
    let mut template = String::with_capacity(argument.len());
    let mut rest = argument;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        let name = from[2..].split('}').next().unwrap_or_default();
        template.push_str(before);
        let word = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
        let is_ours = from.contains('}') && name.contains('.') && name.chars().all(word);
        template.push_str(if is_ours { "${" } else { "$${" });
        rest = &from[2..];
    }
    template + rest
}

/// Chooses the target: the server that is named, the only one, or all if there are several.
///
/// # Errors
/// A sentence that lists the servers.
pub(crate) fn choose<'a>(
    servers: impl Iterator<Item = &'a str>,
    wanted: Option<&str>,
) -> Result<Target, String> {
    let servers: Vec<&str> = servers.collect();
    let known = || match servers.is_empty() {
        true => "there are no servers".to_owned(),
        false => format!("the servers are {}", servers.join(", ")),
    };
    match (wanted, &*servers) {
        (Some(wanted), _) => match servers.iter().find(|name| **name == wanted) {
            Some(name) => Ok(Target::Server((*name).into())),
            None => Err(format!("there is no server {wanted:?}; {}", known())),
        },
        (None, []) => {
            Err("there is no server: name its command behind `--`, or a file with --config"
                .to_owned())
        }
        (None, [one]) => Ok(Target::Server((*one).into())),
        (None, _) => Ok(Target::All),
    }
}

#[cfg(test)]
mod tests {
    use stayput_core::SessionId;
    use stayput_upstream::{Expansion, Launch, ResolvedTransport, Scope};

    use super::*;

    fn launch(definition: &Definition) -> Launch {
        let session = SessionId::generate(stayput_core::Timestamp::from_millis(0));
        let scope =
            Scope::Session { owner: crate::auth::Principal::local().owner, session, branch: 0 };
        let expansion = Expansion::new(&scope).with_session_dir("/s".into());
        match definition.config().unwrap().servers[0].server.resolve(&expansion).unwrap() {
            ResolvedTransport::Stdio(launch) => launch,
            other => panic!("{other:?}"),
        }
    }

    fn commanded(args: &[&str]) -> Definition {
        let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
        let env = ["DIR=${session.dir}/x".parse().unwrap()];
        let given =
            CommandServer { name: None, command: "/opt/my tool.sh", args: &args, env: &env };
        let mut definition = Definition::commanded(&given, Path::new("/work/it"));
        let variables = [("PATH", "/its/bin"), ("API_KEY", "s3${x}"), ("OTHER", "no")];
        definition.variables =
            variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        definition
    }

    /// A child starts as it would without the gateway: in the same directory, with the same environment, whichever
    /// process starts it. The environment is no part of the identity, `--env` is.
    #[test]
    fn command_keeps_its_environment() {
        let definition = commanded(&["--dir=${session.dir}", "a b"]);
        let sent = serde_json::to_string(&definition).unwrap();
        let launch = launch(&serde_json::from_str(&sent).unwrap());
        assert_eq!(launch.command, "/opt/my tool.sh");
        assert_eq!(launch.args, ["--dir=/s", "a b"]);
        assert_eq!(launch.cwd, Some("/work/it".into()));
        let mut env = launch.env;
        env.sort();
        let expected =
            [("API_KEY", "s3${x}"), ("DIR", "/s/x"), ("OTHER", "no"), ("PATH", "/its/bin")];
        assert_eq!(env, expected.map(|(name, value)| (name.into(), value.into())));
        let config = definition.config().unwrap();
        assert_eq!(config.servers[0].server.name(), "my-tool");
        let mut same = commanded(&["--dir=${session.dir}", "a b"]);
        same.variables.insert("OTHER".to_owned(), "of another window".to_owned());
        let same = same.config().unwrap();
        assert_eq!(
            config.servers[0].server.configuration(),
            same.servers[0].server.configuration()
        );
        let wrong = commanded(&["${sesion.dir}"]).config().unwrap_err().to_string();
        assert!(wrong.contains("command line") && wrong.contains("${session.dir}"), "{wrong}");
    }

    /// Only values of Stayput are expanded in arguments: a shell script passes unchanged.
    #[test]
    fn arguments_of_a_shell_script_pass_unchanged() {
        for argument in ["${NOT_SET}", "$${X}", "a${b", "${x%.*}$", "${A:-${B}}", "$$$"] {
            assert_eq!(launch(&commanded(&[argument])).args, [argument], "{argument}");
        }
        assert_eq!(launch(&commanded(&["$${session.dir}"])).args, ["${session.dir}"]);
    }

    /// Invariant 8: the value of `--env` is not shown.
    #[test]
    fn debug_output_of_env_hides_the_value() {
        let argument: EnvArgument = "KEY=s3cr3t-x".parse().unwrap();
        assert_eq!(format!("{argument:?}"), "EnvArgument(KEY)");
        assert!("".parse::<EnvArgument>().is_err() && "=x".parse::<EnvArgument>().is_err());
        assert!("PATH".parse::<EnvArgument>().is_ok());
        let unset = "STAYPUT_TEST_NOT_SET".parse::<EnvArgument>().unwrap_err();
        assert!(unset.contains("not set"), "{unset}");
    }

    #[test]
    fn relative_store_path_starts_at_the_working_directory() {
        let on = |store: &str| commanded(&[]).on(store).config().unwrap().store;
        assert_eq!(on("sqlite:x.db"), "sqlite:/work/it/x.db");
        assert_eq!(on("sqlite:/x.db"), "sqlite:/x.db");
        assert_eq!(on("memory:"), "memory:");
    }

    #[test]
    fn server_is_chosen_by_name() {
        let choose = |servers: &[&str], wanted| choose(servers.iter().copied(), wanted);
        assert_eq!(choose(&["a"], None), Ok(Target::Server("a".into())));
        assert_eq!(choose(&["a", "b"], None), Ok(Target::All));
        assert_eq!(choose(&["a", "b"], Some("b")), Ok(Target::Server("b".into())));
        let wrong = choose(&["a", "b"], Some("c")).unwrap_err();
        assert!(wrong.contains("\"c\"") && wrong.contains("a, b"), "{wrong}");
        assert!(choose(&[], None).unwrap_err().contains("--config"));
    }
}

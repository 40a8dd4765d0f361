//! Servers of `stayput stdio`, from a file or the command line, with the environment of the process. The definition is
//! sent to the process that holds the sessions.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::json;
use stayput_stores::Address;

use crate::config::{Config, ConfigError, Environment, target::Target};

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
    /// Store of the sessions, if it is not set by the file.
    store: Option<String>,
}

/// Server from the command line.
pub(crate) struct CommandServer<'a> {
    /// Name of the server. Defaults to the name of its program.
    pub(crate) name: Option<&'a str>,
    pub(crate) command: &'a str,
    pub(crate) args: &'a [String],
    /// Environment variables that the server gets in addition to the defaults.
    pub(crate) inherit: &'a [String],
}

impl Definition {
    /// Creates a definition from `text`, with the environment of this process.
    pub(crate) fn new(text: Option<String>, origin: &Path, cwd: &Path) -> Self {
        let (origin, cwd) = (cwd.join(origin), cwd.to_owned());
        // A variable that is not UTF-8 cannot be used in a configuration.
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self { text, origin, cwd, variables: variables.collect(), store: None }
    }

    /// Creates a definition with one server from the command line.
    pub(crate) fn commanded(given: &CommandServer<'_>, cwd: &Path) -> Self {
        let CommandServer { command, args, inherit, .. } = given;
        let entry = json!({ "command": command, "args": args, "stayput": { "inherit": inherit } });
        let servers = json!({ given.name.map_or_else(|| plain(command), str::to_owned): entry });
        let text = json!({ "mcpServers": servers }).to_string();
        Self { origin: COMMAND_LINE.into(), ..Self::new(Some(text), Path::new(""), cwd) }
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
        let environment = Environment::from_client(self.variables.clone(), self.cwd.clone());
        let text = self.text.as_deref().unwrap_or(r#"{"mcpServers": {}}"#);
        let mut config = Config::parse(text, &self.origin, environment)?;
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

/// Derives the name of a server from its program.
fn plain(command: &str) -> String {
    let stem = Path::new(command).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let word = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '-' };
    let name: String = stem.chars().map(word).take(64).collect();
    if name.is_empty() { "server".to_owned() } else { name }
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
        let expansion = Expansion::of(&scope).with_session_dir("/s".into());
        match definition.config().unwrap().servers[0].server.resolve(&expansion).unwrap() {
            ResolvedTransport::Stdio(launch) => launch,
            other => panic!("{other:?}"),
        }
    }

    fn commanded(args: &[&str]) -> Definition {
        let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
        let inherit = ["API_KEY".to_owned()];
        let given = CommandServer {
            name: None,
            command: "/opt/my tool.sh",
            args: &args,
            inherit: &inherit,
        };
        let mut definition = Definition::commanded(&given, Path::new("/work/it"));
        let variables = [("PATH", "/its/bin"), ("API_KEY", "s3${x}"), ("OTHER", "no")];
        definition.variables =
            variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        definition
    }

    /// A child starts as it would without the gateway: in the same directory, with the same `PATH` and the inherited
    /// variables, whichever process starts it.
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
        let expected = [("API_KEY", "s3${x}"), ("PATH", "/its/bin")];
        assert_eq!(env, expected.map(|(name, value)| (name.into(), value.into())));
        let config = definition.config().unwrap();
        assert_eq!(config.servers[0].server.name(), "my-tool");
        let same = commanded(&["--dir=${session.dir}", "a b"]).config().unwrap();
        assert_eq!(
            config.servers[0].server.configuration(),
            same.servers[0].server.configuration()
        );
        let wrong = commanded(&["${NOT_SET}"]).config().unwrap_err().to_string();
        assert!(wrong.contains("command line") && wrong.contains("NOT_SET"), "{wrong}");
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

//! Command line of `stayput stdio`.

use std::path::{Path, PathBuf};

use clap::Args;
use stayput_core::Key;

use super::{StoreUrl, found};
use crate::{
    app::reload::StartError,
    config::command_server::{CommandServer, Definition, EnvArgument},
};

const EXAMPLES: &str = "\
Examples:
  stayput stdio -- npx -y @playwright/mcp --isolated
                                                  one server, no file
  stayput stdio --session work -- npx -y @playwright/mcp --isolated
                                                  a reload, or a second window, finds the session again
  stayput stdio --config team.json -s notes       one server of a file
  stayput stdio --config team.json                all of them, tools named SERVER__TOOL
  stayput install cursor                          write such a command into the file of an editor

The server behind `--` has the folder and the whole environment of this
process, and its stderr is the stderr of this process.

A host that names its conversations (VS Code, Codex) gets a session for each
of them, and `--session` has no effect there.

Nothing but messages is written to the standard output. The sessions are in a
running `stayput serve` on the same store, or else in a process in the
background that is started for them and goes with the last of them.";

/// Maximum number of bytes of a key.
const KEY_LIMIT: usize = 128;

/// Arguments of `stayput stdio`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Stdio {
    /// The configuration [default: stayput.json, .mcp.json or mcp.json in the current folder]
    #[arg(long, short, value_name = "FILE", conflicts_with = "command")]
    config: Option<PathBuf>,
    /// Which server of the file; or how the one behind `--` is called [default: name of its package]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) server: Option<String>,
    /// A key of your choice for the session: whoever comes with it again finds the session again. Conversations that
    /// the host names come before it
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub(crate) session: Option<Key>,
    /// Set a variable of the server behind `--`; may be repeated. `${session.dir}` is a folder of the session. Windows
    /// with another value have another process; NAME alone does that with the value of the environment
    #[arg(long, value_name = "NAME=VALUE", requires = "command")]
    env: Vec<EnvArgument>,
    /// Store of the sessions: sqlite:PATH, memory:, postgres://… or redis://…
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,
    /// Do all in this process; needs a store that no other `stayput` uses
    #[arg(long)]
    pub(crate) no_daemon: bool,
    /// One server, as it would be started without Stayput; `${session.dir}` is a folder of the session
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn key(text: &str) -> Result<Key, &'static str> {
    let key = Key::named(text).ok().filter(|_| text.len() <= KEY_LIMIT);
    key.ok_or("a key has 1 to 128 printable bytes")
}

impl Stdio {
    /// Returns the definition of the servers: the command behind `--`, the file that is named, a file in `folder`, or
    /// else the servers of the process that holds the sessions.
    ///
    /// # Errors
    /// [`StartError`] if there is a file that cannot be read.
    pub(crate) fn definition(&self, folder: &Path) -> Result<Definition, StartError> {
        let definition = match (self.command.split_first(), &self.config) {
            (Some((command, args)), _) => {
                let (name, env) = (self.server.as_deref(), &*self.env);
                Definition::commanded(&CommandServer { name, command, args, env }, folder)
            }
            (None, Some(file)) => read(file, folder)?,
            (None, None) => match found(folder) {
                Some(file) => read(&file, folder)?,
                None => Definition::new(None, Path::new("stayput.json"), folder),
            },
        };
        Ok(match &self.store {
            Some(store) => definition.on(store.checked()?),
            None => definition,
        })
    }
}

impl Stdio {
    /// Returns the variables of this process that look like templates of the configuration. The server behind `--` gets
    /// them as they are: only arguments and `--env` are expanded.
    pub(crate) fn unexpanded_variables(&self) -> Vec<String> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            let is_template = ["${session.", "${owner."].iter().any(|it| value.contains(it));
            (is_template && !self.env.iter().any(|env| env.sets(&name))).then_some(name)
        });
        if self.command.is_empty() { Vec::new() } else { variables.collect() }
    }
}

pub(crate) fn read(file: &Path, folder: &Path) -> Result<Definition, StartError> {
    let text = std::fs::read_to_string(folder.join(file));
    let text = text.map_err(|error| StartError::File { file: file.to_owned(), error })?;
    Ok(Definition::new(Some(text), file, folder))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::{
        cli::{Cli, Command},
        config::{command_server::choose, target::Target},
    };

    fn stdio(arguments: &[&str]) -> Result<Stdio, clap::Error> {
        let all = ["stayput", "stdio"].iter().chain(arguments);
        Cli::try_parse_from(all).map(|cli| match cli.command {
            Command::Stdio(stdio) => stdio,
            other => panic!("{other:?}"),
        })
    }

    fn servers(stdio: &Stdio, folder: &Path) -> Vec<String> {
        let config = stdio.definition(folder).unwrap().config().unwrap();
        config.servers.iter().map(|it| it.server.name().to_owned()).collect()
    }

    #[test]
    fn server_comes_from_the_command_line_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        let none = stdio(&[]).unwrap().definition(here).unwrap();
        assert!(!none.has_servers() && none.config().unwrap().warnings.is_empty());
        let text = r#"{"mcpServers": {"one": {"command": "x"}, "two": {"command": "y"}}}"#;
        std::fs::write(here.join("mcp.json"), text).unwrap();
        assert_eq!(servers(&stdio(&[]).unwrap(), here), ["one", "two"]);
        assert_eq!(servers(&stdio(&["--config", "mcp.json"]).unwrap(), here), ["one", "two"]);
        let given = stdio(&["--", "npx", "-y", "x", "--session", "y"]).unwrap();
        assert_eq!((servers(&given, here), given.session), (vec!["x".to_owned()], None));
        let named = stdio(&["--server", "web", "--env", "A=b", "--", "npx"]).unwrap();
        assert_eq!(servers(&named, here), ["web"]);
        let target =
            choose(servers(&named, here).iter().map(String::as_str), named.server.as_deref());
        assert_eq!(target, Ok(Target::Server("web".into())));
        let missing = stdio(&["--config", "/no/such"]).unwrap().definition(here).err().unwrap();
        assert!(missing.to_string().contains("/no/such"), "{missing}");
    }

    #[test]
    fn contradicting_arguments_are_refused() {
        for arguments in [
            &["--session", ""][..],
            &["--session", "a\nb"],
            &["--config", "x", "--", "npx"],
            &["--env", "A=b"],
            &["--env", "1=b", "--", "npx"],
            &["npx"],
        ] {
            assert_eq!(stdio(arguments).unwrap_err().exit_code(), 2, "{arguments:?}");
        }
        assert_eq!(stdio(&["--session", "a b"]).unwrap().session.unwrap().as_str(), "name:a b");
    }
}

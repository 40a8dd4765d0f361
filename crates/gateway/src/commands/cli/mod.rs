//! Command line.

mod check;
mod completions;
mod install;
mod operate;
pub(crate) mod stdio;

use std::{
    convert::Infallible,
    fmt,
    io::IsTerminal as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing_subscriber::filter::LevelFilter;

pub(crate) use self::{
    check::Check,
    completions::Completions,
    install::Install,
    operate::{
        CallArgs, DrainArgs, End, Filter, GatewayArgs, SessionsArgs, SessionsCommand, StatusArgs,
        StopArgs, ToolsArgs, UiArgs,
    },
    stdio::Stdio,
};
#[cfg(test)]
use crate::config::Config;
use crate::{
    app::reload::Source,
    app::reload::StartError,
    config,
    observe::log::{self, LogFormat},
};

/// File names of a configuration in the current folder, by priority. Stayput's own name comes first.
const FILES: [&str; 3] = ["stayput.json", ".mcp.json", "mcp.json"];

const EXAMPLES: &str = "\
Examples:
  stayput demo                             see what this is for, in less than a minute
  stayput serve                            the servers of ./stayput.json, ./.mcp.json or ./mcp.json
  stayput serve --config team.json --listen 127.0.0.1:8080
  stayput serve --store memory:            forget all sessions at the end
  stayput check                            does every server start, and are its sessions apart?
  stayput stdio -- npx -y @playwright/mcp --isolated
                                           in an IDE, in place of the command of a server
  stayput install cursor                   put that into the file of an editor
  stayput status                           what runs here, and how its servers are
  stayput ui                               the same and more in a browser, live
  stayput sessions                         who uses what in the gateway that runs
  stayput tools notes                      what can be called there
  stayput call notes note_add text='milk'  one call through it
  stayput token ann                        a bearer token for the configuration
  stayput demo-server                      a small server with state, to try things with
  stayput demo-server --http 127.0.0.1:0   the same over HTTP";

/// Keeps stateful MCP servers alive, one isolated session per conversation, agent run or user.
#[derive(Debug, Parser)]
#[command(name = "stayput", version, max_term_width = 100, after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Subcommand to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Subcommands of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Listen over HTTP and keep a session for each client, in front of the configured servers
    Serve(Serve),
    /// Speak over standard input and output, for IDEs: in place of a server's command, or in front of it
    Stdio(Stdio),
    /// Put Stayput in front of the servers in the file of an editor or agent, and take it out again
    Install(Install),
    /// Start every configured server and say what is wrong with it: era, tools, time, isolation
    Check(Check),
    /// Print the JSON Schema of the configuration, for editors and CI
    Schema,
    /// Print the completion script of a shell
    Completions(Completions),
    /// Show the process that holds the sessions here, its servers and its sessions
    Status(StatusArgs),
    /// Move the sessions of a gateway to the others of its cluster
    Drain(DrainArgs),
    /// End the background process of `stayput stdio`
    Stop(StopArgs),
    /// Open the dashboard of a running gateway in a browser
    Ui(UiArgs),
    /// See and end the sessions of a running gateway
    Sessions(SessionsArgs),
    /// Make one call through a running gateway
    Call(CallArgs),
    /// List the tools of a running gateway
    Tools(ToolsArgs),
    /// Make a bearer token: it is printed once, and its hash for the configuration
    Token(Token),
    /// See what this is for, in less than a minute: two chats, one crash, nothing to install
    Demo(Demo),
    /// Run the built-in demo server: a notebook with state, over stdio or HTTP
    DemoServer(DemoServer),
    /// Hold sessions for `stayput stdio`, which starts this by itself
    #[command(hide = true)]
    Daemon {
        /// Already on its own
        #[arg(long)]
        begun: bool,
    },
    /// Start and, above all, end the child processes of another `stayput`; it starts this by itself
    #[command(hide = true)]
    Warden,
}

/// Condition for a start of all servers when the gateway starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProbeWhen {
    #[default]
    Auto,
    Always,
    Never,
}

impl ProbeWhen {
    pub(crate) fn is_now(self) -> bool {
        match self {
            Self::Auto => std::io::stderr().is_terminal(),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// Arguments of `stayput serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The configuration, read anew when it changes or on SIGHUP [default: stayput.json, .mcp.json or
    /// mcp.json in the current folder]
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on; overrides the configuration [default: 127.0.0.1:7337]
    #[arg(long, short, value_name = "ADDR", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Store of the sessions: sqlite:PATH, memory:, postgres://… or redis://…
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,
    /// Folder of keys, of the private folders of sessions and of the socket; several gateways on one machine need one
    /// each [default: beside the store's file, or in the user's data folder]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Level of the log on the standard error: off, error, warn, info, debug or trace; comes before RUST_LOG
    /// [default: info]
    #[arg(long, value_name = "LEVEL", value_parser = log::level)]
    pub(crate) log: Option<LevelFilter>,
    /// Format of the log
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
    /// Start each server once in the background, and say which of them do not work; auto: if the log is read on a
    /// terminal
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) probe: ProbeWhen,
    /// Listen on an address that other machines can reach, without asking anybody who they are
    #[arg(long)]
    pub(crate) open_to_all: bool,
    /// Stop when the standard input ends, as it does when the program that started this is gone
    #[arg(long)]
    pub(crate) stop_with_stdin: bool,
}

const TOKEN: &str = "\
The hash goes into the configuration, under the name; the token goes to
whoever has that name, and is kept nowhere:

  \"stayput\": { \"auth\": { \"tokens\": { \"ann\": \"sha256:…\" } } }";

/// Arguments of `stayput token`.
#[derive(Debug, Args)]
#[command(after_help = TOKEN)]
pub(crate) struct Token {
    /// Name of its owner; sessions belong to the name, so a new token for it finds them again
    pub(crate) name: String,
    /// With the role `admin`: its bearer may see and end the sessions of all
    #[arg(long)]
    pub(crate) admin: bool,
    /// One JSON object instead of lines for people
    #[arg(long)]
    pub(crate) json: bool,
}

const DEMO: &str = "\
Two chats use a small server with state, a notebook. You see
  1. what happens without Stayput: a chat reads the notes of the other;
  2. with it: each chat has a process and notes of its own;
  3. fifty first calls at once: one process is started;
  4. kill -9 of the gateway and a new start: no process is left over, a
     session on an HTTP server goes on, and the chat whose process had to
     go is told so.

All of it really runs, on free ports of this machine and in a temporary
folder, and is gone at the end, also after Ctrl-C. The exit code is 1 if
anything was not as it should be.";

/// Arguments of `stayput demo`.
#[derive(Debug, Args)]
#[command(after_help = DEMO)]
pub(crate) struct Demo {
    /// One JSON object for each step, instead of lines for people
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `stayput demo-server`.
#[derive(Debug, Args)]
pub(crate) struct DemoServer {
    /// Speak Streamable HTTP at this address of this machine, and print the URL; port 0 is any
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) http: Option<SocketAddr>,
    /// Keep the sessions in this file, so that a server that is started again still knows them
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(crate) state: Option<PathBuf>,
}

/// URL of a store. It is checked when the store is opened: clap repeats an argument that it refuses in the error, and
/// this one may contain a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl(pub(crate) String);

impl FromStr for StoreUrl {
    type Err = Infallible;

    fn from_str(url: &str) -> Result<Self, Infallible> {
        Ok(Self(url.to_owned()))
    }
}

impl StoreUrl {
    /// Returns the URL, unless it contains a password, which every user of this machine could read.
    fn checked(&self) -> Result<&str, StartError> {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        let user = rest.rsplit_once('@').map_or("", |(user, _)| user);
        if user.contains(':') || rest.contains("password=") {
            return Err(StartError::Password);
        }
        Ok(&self.0)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.parse::<stayput_stores::Address>())
    }
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    config::address(text).ok_or("write address and port, such as 127.0.0.1:7337")
}

impl Serve {
    /// Reads the configuration, with the overrides of the command line. If no file is named, it is searched in
    /// `folder`.
    ///
    /// # Errors
    /// [`StartError`] says what to write where.
    #[cfg(test)]
    fn configuration(&self, folder: &Path) -> Result<Config, StartError> {
        self.source(folder)?.load().0
    }

    /// Returns the source of the configuration, for the start and for reloads.
    ///
    /// # Errors
    /// [`StartError`] says what to write where.
    pub(crate) fn source(&self, folder: &Path) -> Result<Source, StartError> {
        let store = self.store.as_ref().map(StoreUrl::checked).transpose()?.map(str::to_owned);
        let (listen, open_to_all) = (self.listen, self.open_to_all);
        let data = self.data.clone();
        Ok(Source { file: self.file(folder)?, listen, store, data, open_to_all })
    }

    fn file(&self, folder: &Path) -> Result<PathBuf, StartError> {
        file(self.config.as_deref(), folder)
    }
}

/// Returns the configuration file that is named, or the one in the folder.
fn file(named: Option<&Path>, folder: &Path) -> Result<PathBuf, StartError> {
    let file = named.map(Path::to_owned).or_else(|| found(folder));
    file.ok_or_else(|| StartError::NoConfig(folder.to_owned()))
}

/// Returns the configuration file in a folder, if there is one.
pub(crate) fn found(folder: &Path) -> Option<PathBuf> {
    FILES.into_iter().map(|name| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, error::ErrorKind};

    use super::*;

    fn serve(arguments: &[&str]) -> Serve {
        let all = ["stayput", "serve"].iter().chain(arguments);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Serve(serve) => serve,
            other => panic!("{other:?}"),
        }
    }

    fn refused(arguments: &[&str]) -> clap::Error {
        Cli::try_parse_from(["stayput"].iter().chain(arguments)).unwrap_err()
    }

    #[test]
    fn clap_accepts_the_command_line_definition() {
        Cli::command().debug_assert();
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("Examples:") && !help.contains("warden"), "{help}");
        assert!(!help.contains("daemon"), "{help}");
        assert!(matches!(Cli::parse_from(["stayput", "warden"]).command, Command::Warden));
    }

    #[test]
    fn command_line_overrides_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let text =
            r#"{"mcpServers": {}, "stayput": {"listen": "127.0.0.1:1", "store": "memory:"}}"#;
        std::fs::write(folder.path().join("stayput.json"), text).unwrap();
        let config = serve(&[]).configuration(folder.path()).unwrap();
        assert_eq!((config.listen.port(), config.store.as_str()), (1, "memory:"));
        let over = serve(&["--listen", "localhost:2", "--store", "sqlite:x.db"]);
        let config = over.configuration(folder.path()).unwrap();
        assert_eq!((config.listen.port(), config.store.as_str()), (2, "sqlite:x.db"));
    }

    #[test]
    fn configuration_is_found_in_its_default_places() {
        let folder = tempfile::tempdir().unwrap();
        let missing = serve(&[]).configuration(folder.path()).unwrap_err().to_string();
        assert!(missing.contains("--config FILE"), "{missing}");
        for (name, port) in [("mcp.json", 1), (".mcp.json", 2), ("stayput.json", 3)] {
            let listen = format!("127.0.0.1:{port}");
            let text = format!(r#"{{"mcpServers": {{}}, "stayput": {{"listen": "{listen}"}}}}"#);
            std::fs::write(folder.path().join(name), text).unwrap();
            let config = serve(&[]).configuration(folder.path()).unwrap();
            assert_eq!(config.listen.port(), port, "{name} comes before the others so far");
        }
        let named = folder.path().join("mcp.json");
        let named = serve(&["--config", named.to_str().unwrap()]);
        assert_eq!(named.configuration(folder.path()).unwrap().listen.port(), 1);
        let wrong = serve(&["--config", "/no/such"]).configuration(folder.path()).unwrap_err();
        assert!(wrong.to_string().starts_with("/no/such: "), "{wrong}");
    }

    #[test]
    fn wrong_usage_exits_with_code_2() {
        for arguments in [
            &["serv"][..],
            &["serve", "--listen", "here"],
            &["serve", "--log-format", "xml"],
            &["serve", "--log", "loud"],
            &["demo-server", "--state", "x"],
            &["demo-server", "extra"],
            &[],
        ] {
            let error = refused(arguments);
            assert_eq!(error.exit_code(), 2, "{arguments:?}");
            assert!(error.use_stderr(), "{arguments:?}");
        }
        assert_eq!(refused(&["--version"]).kind(), ErrorKind::DisplayVersion);
        assert_eq!(refused(&["serve", "--help"]).exit_code(), 0);
    }

    /// Invariant 8: a password on the command line is refused, because every user of the machine can read it.
    #[test]
    fn password_on_the_command_line_is_refused() {
        let refused = |url: &str| StoreUrl(url.to_owned()).checked().map(str::to_owned).err();
        for url in [
            "postgres://ann:s3cr3t-pw@h/db",
            "redis://:s3cr3t-pw@h",
            "postgres://ann@h/db?password=s3cr3t-pw",
            "rediss://ann:s3cr3t/@pw@h/0",
        ] {
            let said = refused(url).unwrap().to_string();
            assert!(said.contains("STAYPUT_STORE") && !said.contains("s3cr3t"), "{said}");
        }
        for url in ["memory:", "sqlite:a@b:c", "postgres://ann@h:5432/db", "redis://h:6379/0"] {
            assert!(refused(url).is_none(), "{url}");
        }
    }

    /// Invariant 8: the password of a store is not shown.
    #[test]
    fn debug_output_hides_the_password() {
        for url in ["redis://:s3cret@h/0", "u:s3cret@h"] {
            let shown = format!("{:?}", serve(&["--store", url]));
            assert!(!shown.contains("s3cret"), "{shown}");
        }
        assert_eq!(serve(&["--log-format", "json"]).log_format, LogFormat::Json);
    }
}
